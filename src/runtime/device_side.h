// What a device keeps whose streams are no threads.
#pragma once

#include "runtime/graphs.h"
#include "runtime/stream/branch.h"
#include "runtime/stream/flight_recorder.h"

namespace piper {

/// Memory with fixed places.
struct ArenaUse {
  int64_t bytes = 0;         // of all arenas of the device; 0: it has none
  int64_t alive = 0;         // the most that was alive at once of what is in them
  int64_t arena_misses = 0;  // pieces that were not expected and came from elsewhere
};

/// What a device whose streams are no threads does around its operations: it keeps time, which is known after the step,
/// and knows which operation takes memory.
class DeviceSide {
 public:
  virtual ~DeviceSide() = default;
  /// The streams are idle.
  virtual void begin(int64_t step) = 0;
  /// On the stream that the calling thread uses now.
  virtual void started(int op) = 0;
  virtual void ended(int op) = 0;
  /// Puts in recorded work, which is these operations.
  virtual void launch(int first, int last, CudaGraph& work) = 0;
  /// Of an operation whose work has been put in: it has been done. Asked by another thread.
  virtual bool has_ended(int op) const = 0;
  /// Everything has ended: corrects what the recorder has of the step.
  virtual void end(FlightRecorder& recorder) = 0;
  /// Something failed while `op` was put in, or after everything was (-1): the operation that failed, since work fails
  /// when it is done. -1: none of this device.
  virtual int culprit(int op) = 0;
  virtual ArenaUse arena() const = 0;
  /// For computations of the device; may be none.
  virtual Branch* branch() = 0;
};

}  // namespace piper
