// One device executing its plan, step after step.
#pragma once

#include <memory>
#include <vector>

#include "runtime/device_streams.h"
#include "runtime/launch_unit.h"
#include "runtime/memory_meter.h"
#include "runtime/operations.h"
#include "runtime/run_options.h"
#include "runtime/stream/failure.h"

namespace piper {

/// Everything that depends on the plan alone is decided in `prepare`: a list of launch units. A step issues them one by
/// one, on a thread of its own: wait for other streams, launch, record events, release buffers.
class DeviceRun {
 public:
  DeviceRun(const Plan& plan, const StepConfig& step, Computations& computations, Communicator& communicator,
            Failure& failure, const RunOptions& options);

  int device() const { return on_.device; }
  const PlanTemplate& program() const { return on_.program; }
  Processor& processor() { return on_.processor; }
  Communicator& communicator() const { return on_.communicator; }
  Frame& frame() { return frame_; }
  const FlightRecorder& recorder() const { return recorder_; }
  MemoryCounter& memory() { return memory_; }
  const Operations& operations() const { return operations_; }
  ArenaUse arena() const { return side_->arena(); }
  /// On a GPU: host time spent on launching the last step's computations.
  Nanoseconds launch_time() const { return streams_.launch_time(); }

  /// Whether an operation that was issued in this step has ended.
  bool has_ended(OpId op) const;

  /// Before the first step: allocates persistent buffers, makes executors and launch units.
  void prepare();
  /// Starts a step; returns at once.
  void start(const StepSettings& settings);
  /// Waits until the step has ended on all streams of this device.
  void wait() const { streams_.wait(); }
  /// Whether all threads of the device are idle.
  bool idle() const { return streams_.idle(); }

 private:
  void allocate_persistent();
  void run_step(const StepSettings& settings);
  void issue(std::vector<LaunchUnit>& units);
  void release(const BufferFree& free);

  const DeviceContext on_;
  MemoryCounter memory_;
  Frame frame_;
  FlightRecorder recorder_;
  std::unique_ptr<DeviceSide> side_;
  Operations operations_;
  std::vector<LaunchUnit> units_;
  DeviceStreams streams_;  // ends first: its threads use all others
};

}  // namespace piper
