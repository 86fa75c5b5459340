// One device executing its plan, step after step.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/executor.h"
#include "runtime/launch_unit.h"
#include "runtime/memory_meter.h"
#include "runtime/memory_order.h"
#include "runtime/stream/failure.h"
#include "runtime/stream/flight_recorder.h"
#include "runtime/stream/serial_stream.h"
#include "runtime/stream/stream.h"

namespace piper {

/// When the operations of a device are issued.
enum class Issue {
  Ahead,  // all are issued at once; streams run side by side
  Serial  // each ends before the next is issued: memory is exactly what the plan says
};

struct RunOptions {
  Issue issue = Issue::Ahead;
  size_t recorded_steps = 2;  // kept by the flight recorder
  /// Called before every operation, on the thread that runs it: tests delay operations and plant faults here.
  std::function<void(int device, OpId op)> before_op;
  /// Called after every operation, on the thread that ran it, before any of its buffers is freed.
  std::function<void(int device, OpId op, Frame& frame)> after_op;
  /// Existing memory for the weights of a bucket; an undefined tensor, or no function: the device allocates it.
  std::function<at::Tensor(int device, const PlanBucket& bucket)> weights;
  bool poison_freed = false;
  Processor* processor = nullptr;  // null: the CPU
  Turns* turns = nullptr;          // null: devices compute concurrently
};

class DeviceRun {
 public:
  DeviceRun(const Plan& plan, int device, const StepConfig& step, Computations& computations,
            Communicator& communicator, Failure& failure, const RunOptions& options);
  ~DeviceRun();

  int device() const { return device_; }
  const PlanTemplate& program() const { return program_; }
  Processor& processor() { return processor_; }
  Communicator& communicator() const { return communicator_; }
  Frame& frame() { return frame_; }
  const FlightRecorder& recorder() const { return recorder_; }
  MemoryCounter& memory() { return memory_; }
  ArenaUse arena() const { return side_ ? side_->arena() : ArenaUse{}; }
  /// On a GPU: host time spent on launching the last step's computations, and the number of their operators.
  Nanoseconds issuing() const { return issuing_.load(std::memory_order_relaxed); }
  int64_t operators() const;
  /// Number of operations that have ended since the run began.
  int64_t progress() const { return progress_.load(std::memory_order_relaxed); }

  /// Whether an operation that was issued in this step has ended.
  bool has_ended(OpId op) const;

  /// Allocates persistent buffers, makes executors, and groups operations into launch units. A step then issues the
  /// units one by one: wait for other streams, launch, record an event, release buffers.
  void prepare();
  /// Starts a step; returns at once.
  void start(const StepSettings& settings);
  /// Waits until the step has ended on all streams of this device.
  void wait();
  /// Whether all threads of the device are idle.
  bool idle() const;

 private:
  void find_units();
  void prepare_segments();
  LaunchUnit unit_of(GraphSegment& segment);
  /// Of an operation; with the next one if that receives what it sends.
  LaunchUnit unit_of(OpId op);
  /// With what it waits for.
  Launch launch_of(OpId op) const;
  /// The operation's stream, timed if the device has a clock of its own, and serial if requested.
  Stream& stream_of(const PlannedOp& op, bool serial);
  void issue_all();
  void issue(std::vector<LaunchUnit>& units);
  void release(const LaunchUnit& unit);
  void execute(OpId op);
  void attempt(const OpId& op, const std::function<void()>& work);

  const Plan& plan_;
  const PlanTemplate& program_;
  const int device_;
  const PlanIndex index_;
  const StepConfig& step_config_;
  Computations& computations_;
  Communicator& communicator_;
  Failure& failure_;
  const RunOptions& options_;
  Processor& processor_;
  MemoryCounter memory_;
  Frame frame_;
  ProcessGroups groups_;
  FlightRecorder recorder_;
  Table<OpId, std::unique_ptr<Executor>> executors_;
  Table<OpId, char> completes_;  // reduces gradients of a bucket or gathers its weights: only in steps that update
  MemoryOrder order_;
  Table<OpId, char> awaited_;  // whether its event is recorded
  std::unique_ptr<DeviceSide> side_;
  std::optional<SegmentDevice> segment_device_;
  std::vector<GraphSegment> segments_;
  std::vector<LaunchUnit> units_;
  SerialOrder serial_;
  Nanoseconds launch_time_ = 0;  // host time of launches in this step so far
  std::atomic<Nanoseconds> issuing_ = 0;
  Table<OpId, Event> events_;
  Table<PlanStreamId, Event> ends_;  // the last one is the host's
  uint32_t step_ = 0;                // of the events
  std::atomic<int64_t> progress_ = 0;
  Table<PlanStreamId, std::unique_ptr<Stream>> streams_;  // null where the device does not use one
  std::vector<std::unique_ptr<Stream>> decorated_;
  std::unique_ptr<Stream> host_;
};

/// The template with the device's plan.
const PlanTemplate& program_of(const Plan& plan, int device);
/// `device 4: op 17 all_to_all x.3 F mb=2 on ep (step.piper:5)`
std::string describe_op(const Plan& plan, int device, OpId op);

}  // namespace piper
