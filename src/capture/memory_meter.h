// Counts the bytes of tensors that this thread allocates and frees, through libtorch's reporting hook. The CPU
// allocator reports what was asked for, without rounding.
#pragma once

#include <cstdint>
#include <memory>

namespace piper {

/// Counts while it lives.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  int64_t now() const;   // allocated less freed since it was made
  int64_t peak() const;  // the most that was, since the last reset
  void reset_peak();

 private:
  struct Counter;
  struct Guard;
  std::shared_ptr<Counter> counter_;
  std::unique_ptr<Guard> guard_;
};

}  // namespace piper
