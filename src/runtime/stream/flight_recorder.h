// When every operation of a device was launched, started and ended, for the last steps.
//
// One record per operation and step, each written by one thread at a time. Readers may come at any moment (the watchdog
// does): times are atomic.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/shared_ids.h"

namespace piper {

/// Nanoseconds since the clock began.
using Nanoseconds = int64_t;
inline Nanoseconds now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct OpTimes {
  Nanoseconds launched = 0, started = 0, ended = 0;  // 0: not yet
};

class FlightRecorder {
 public:
  /// Keeps the last `steps` steps.
  FlightRecorder(size_t ops, size_t steps);

  void begin(int64_t step);  // steps count from 0
  void launched(OpId op, Nanoseconds when = now()) { at(step_, op).launched.store(when, std::memory_order_relaxed); }
  void started(OpId op, Nanoseconds when = now()) { at(step_, op).started.store(when, std::memory_order_relaxed); }
  void ended(OpId op, Nanoseconds when = now());
  /// What a device's own clock says of an operation that has ended.
  void correct(OpId op, Nanoseconds started, Nanoseconds ended);

  size_t ops() const { return ops_; }
  /// The last step begun, and the oldest that is still here.
  int64_t step() const { return step_; }
  int64_t oldest() const;
  OpTimes times(int64_t step, OpId op) const;
  /// The longest that an operation took in any step; 0: it has not ended yet.
  Nanoseconds longest(OpId op) const { return longest_[op.index()].load(std::memory_order_relaxed); }

 private:
  void note_length(OpId op, Nanoseconds took);

  struct Record {
    std::atomic<Nanoseconds> launched = 0, started = 0, ended = 0;
  };
  Record& at(int64_t step, OpId op) const { return records_[static_cast<size_t>(step) % steps_ * ops_ + op.index()]; }

  size_t ops_, steps_;
  std::atomic<int64_t> step_ = 0;
  std::unique_ptr<Record[]> records_;
  std::unique_ptr<std::atomic<Nanoseconds>[]> longest_;
};

}  // namespace piper
