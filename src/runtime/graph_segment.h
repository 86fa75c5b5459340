// Consecutive computations on one stream, recorded once as a CUDA graph and launched as a whole.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/executor.h"
#include "runtime/memory_order.h"
#include "runtime/stream/flight_recorder.h"

namespace piper {

/// The device that a segment runs on.
struct SegmentDevice {
  const PlanTemplate& program;
  const MemoryOrder& order;
  const Table<OpId, std::unique_ptr<Executor>>& executors;
  Frame& frame;
  DeviceSide& side;
  FlightRecorder& recorder;
  std::function<void(OpId op)> before_op;  // may be empty
  /// Runs `work`; an error names the operation that `op` refers to when it is thrown.
  std::function<void(const OpId& op, const std::function<void()>& work)> attempt;
};

class GraphSegment {
 public:
  GraphSegment(const SegmentDevice& device, IdRange<OpId> ops, std::unique_ptr<CudaGraph> work);

  IdRange<OpId> ops() const { return ops_; }
  /// On its stream: records the graph the first time, and launches it. False: nothing was launched, and its operations
  /// must be issued one by one.
  bool launch();
  void skip() { launched_ = false; }
  /// Whether the last attempt succeeded.
  bool launched() const { return launched_; }

 private:
  bool try_to_launch();
  bool record();
  void run_all();
  std::vector<const void*> places() const;

  const SegmentDevice& device_;
  IdRange<OpId> ops_;
  std::vector<BufferId> touched_;    // buffers of a step; those from outside may have other addresses in some step
  std::unique_ptr<CudaGraph> work_;  // null: it cannot be recorded
  bool recorded_ = false, launched_ = false;
  std::vector<const void*> places_;     // addresses of its buffers when it was recorded
  std::vector<Frame::Change> changes_;  // its effects on the frame
};

/// All segments of a device. A computation begins a new one if it waits for another stream, or takes memory that
/// another stream used.
std::vector<GraphSegment> find_segments(const SegmentDevice& device, Processor& processor);

}  // namespace piper
