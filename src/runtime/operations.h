// The operations of a device: an executor for each, and what happens around every one of them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/executor.h"
#include "runtime/stream/flight_recorder.h"

namespace piper {

/// Does what surrounds an operation: callbacks, times, releasing its buffers, and errors that say where it was.
class Operations {
 public:
  Operations(const DeviceContext& on, Frame& frame, FlightRecorder& recorder, DeviceSide& side)
      : on_(on), frame_(frame), recorder_(recorder), side_(side), index_(on.plan, on.program, on.device) {}

  /// Joins the process groups and makes the executors. Persistent buffers have been allocated.
  void prepare();
  const DeviceContext& on() const { return on_; }
  const PlanIndex& index() const { return index_; }
  /// All inputs of the model that the device reads.
  std::vector<FrameInput> inputs() const;
  /// Operators of libtorch that a step calls.
  int64_t operators() const;
  /// Operations that have ended since the run began.
  int64_t ended() const { return ended_.load(std::memory_order_relaxed); }

  /// On the operation's stream. After a failure, nothing.
  void run(OpId op);

  /// The same in two parts, for consecutive operations that are recorded as one CUDA graph: what every launch needs
  /// before, and what is recorded.
  bool can_be_recorded(IdRange<OpId> ops) const;
  void renew(IdRange<OpId> ops);
  void record(OpId op);
  void launch(IdRange<OpId> ops, CudaGraph& graph);

  Frame& frame() { return frame_; }

  /// Runs a step; an error that no operation has reported is attributed to one, if the device knows which.
  void attempt_step(const std::function<void()>& step) const;

 private:
  /// Runs `work`; an error names the operation that `op` refers to when it is thrown.
  void attempt(const OpId& op, const std::function<void()>& work) const;
  void before(OpId op) const;

  const DeviceContext& on_;
  Frame& frame_;
  FlightRecorder& recorder_;
  DeviceSide& side_;
  const PlanIndex index_;
  ProcessGroups groups_;
  Table<OpId, std::unique_ptr<Executor>> executors_;
  Table<OpId, char> completes_;  // reduces gradients of a bucket or gathers its weights: only in steps that update
  std::atomic<int64_t> ended_ = 0;
};

/// The template with the device's plan.
const PlanTemplate& program_of(const Plan& plan, int device);
/// `device 4: op 17 all_to_all x.3 F mb=2 on ep (step.piper:5)`
std::string describe_op(const Plan& plan, int device, OpId op);

}  // namespace piper
