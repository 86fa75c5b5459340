// An event that comes once in every step, as in CUDA, and that threads and streams wait for.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

namespace piper {

/// A GPU's own event.
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
  /// Releases all waiters, now and later.
  void release() { signal(std::numeric_limits<uint32_t>::max()); }

  std::unique_ptr<DeviceEvent> on_device;  // if GPU streams record it: then `step_` says only that they have

 private:
  std::atomic<uint32_t> step_ = 0;
};

}  // namespace piper
