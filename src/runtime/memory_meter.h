// Counts the bytes of tensors, through libtorch's reporting hook. The CPU allocator reports requested bytes; that of
// GPUs rounds up to 512 bytes.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstdint>
#include <memory>

namespace piper {

/// Counts what threads with a CountMemory allocate and free.
class MemoryCounter {
 public:
  /// Counts memory of this kind of device.
  explicit MemoryCounter(c10::DeviceType of = c10::DeviceType::CPU);
  ~MemoryCounter();
  MemoryCounter(const MemoryCounter&) = delete;
  MemoryCounter& operator=(const MemoryCounter&) = delete;

  int64_t now() const;   // allocated less freed since it was made
  int64_t peak() const;  // maximum since the last reset
  void reset_peak();

 private:
  friend class CountMemory;
  struct Hook;
  std::shared_ptr<Hook> hook_;
};

/// While it lives, what this thread allocates and frees is counted by `counter`.
class CountMemory {
 public:
  explicit CountMemory(MemoryCounter& counter);
  ~CountMemory();
  CountMemory(const CountMemory&) = delete;
  CountMemory& operator=(const CountMemory&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

/// Counts what this thread allocates and frees while it lives.
class MemoryMeter {
 public:
  explicit MemoryMeter(c10::DeviceType of = c10::DeviceType::CPU) : counter_(of) {}
  int64_t now() const { return counter_.now(); }
  int64_t peak() const { return counter_.peak(); }
  void reset_peak() { counter_.reset_peak(); }

 private:
  MemoryCounter counter_;
  CountMemory counting_{counter_};
};

}  // namespace piper
