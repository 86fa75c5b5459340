// What a processor does around the operations of a device: takes times, plans memory, attributes errors. On a CPU,
// where streams are threads, nothing.
#pragma once

#include "base/table.h"
#include "runtime/graphs.h"
#include "runtime/stream/branch.h"
#include "runtime/stream/flight_recorder.h"

namespace piper {

/// Preplanned memory.
struct ArenaUse {
  int64_t bytes = 0;         // of all arenas of the device; 0: none
  int64_t alive = 0;         // peak of live bytes in them
  int64_t arena_misses = 0;  // unexpected allocations, which came from PyTorch's allocator
};

/// On a GPU: takes times with its clock, which are known after the step, and attributes allocations to operations.
class DeviceSide {
 public:
  virtual ~DeviceSide() = default;
  /// Whether it has a clock: then operations end later than the calls that launch them.
  virtual bool has_clock() const = 0;
  /// Before a step: the streams are idle.
  virtual void begin(int64_t step) = 0;
  /// Enqueued on the calling thread's current stream.
  virtual void started(OpId op) = 0;
  virtual void ended(OpId op) = 0;
  /// Launches a graph of these operations.
  virtual void launch(IdRange<OpId> ops, CudaGraph& work) = 0;
  /// Whether an operation that was launched has ended. Called by another thread.
  virtual bool has_ended(OpId op) const = 0;
  /// After a step: corrects the recorder's times.
  virtual void end(FlightRecorder& recorder) = 0;
  /// The operation that failed, when an error is reported while `op` is launched, or (none) after all were: kernels
  /// fail later than they are launched. Returns none if no operation of this device failed.
  virtual OpId culprit(OpId op) = 0;
  virtual ArenaUse arena() const = 0;
  /// For computations of the device; may be null.
  virtual Branch* branch() = 0;
};

}  // namespace piper
