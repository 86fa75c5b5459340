// Something that ends once in every step, and that others wait for.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

namespace piper {

/// What a device that is no thread records in the event's place.
struct DeviceEvent {
  virtual ~DeviceEvent() = default;
};

class Event {
 public:
  /// Steps are numbered from 1.
  void signal(uint32_t step) {
    step_.store(step, std::memory_order_release);
    step_.notify_all();
  }
  void wait(uint32_t step) const {
    for (uint32_t seen = step_.load(std::memory_order_acquire); seen < step;
         seen = step_.load(std::memory_order_acquire))
      step_.wait(seen, std::memory_order_acquire);
  }
  bool has_ended(uint32_t step) const { return step_.load(std::memory_order_acquire) >= step; }
  /// Lets everybody go who waits, now and later.
  void release() { signal(std::numeric_limits<uint32_t>::max()); }

  std::unique_ptr<DeviceEvent> on_device;  // of the streams that record it; here it then says only that they have

 private:
  std::atomic<uint32_t> step_ = 0;
};

}  // namespace piper
