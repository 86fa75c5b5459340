// Computations that follow each other on one stream, recorded once as one piece of work and launched as a whole.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/executor.h"
#include "runtime/memory_order.h"
#include "runtime/stream/flight_recorder.h"

namespace piper {

/// The device that executes them.
struct SegmentDevice {
  const PlanTemplate& program;
  const MemoryOrder& order;
  const Table<OpId, std::unique_ptr<Executor>>& executors;
  Frame& frame;
  DeviceSide& side;
  FlightRecorder& recorder;
  std::function<void(OpId op)> before_op;  // may be none
  /// Does something, and says of which operation it was part if that fails.
  std::function<void(const OpId& op, const std::function<void()>& work)> attempt;
};

class GraphSegment {
 public:
  GraphSegment(const SegmentDevice& device, IdRange<OpId> ops, std::unique_ptr<CudaGraph> work);

  IdRange<OpId> ops() const { return ops_; }
  /// On its stream: records it when it comes for the first time, and puts it in. False: nothing has happened, and its
  /// operations are to be issued one by one.
  bool launch();
  void skip() { launched_ = false; }
  /// The last time it was.
  bool launched() const { return launched_; }

 private:
  bool try_to_launch();
  bool record();
  void run_all();
  std::vector<const void*> places() const;

  const SegmentDevice& device_;
  IdRange<OpId> ops_;
  std::vector<BufferId> touched_;    // buffers that do not last: those from outside may be elsewhere for once
  std::unique_ptr<CudaGraph> work_;  // none: it cannot be recorded
  bool recorded_ = false, launched_ = false;
  std::vector<const void*> places_;     // of what it was given when it was recorded
  std::vector<Frame::Change> changes_;  // what it does to the frame
};

/// All of a device. Whoever waits for another stream begins a new one; so does whoever comes after memory that another
/// stream used.
std::vector<GraphSegment> find_segments(const SegmentDevice& device, Processor& processor);

}  // namespace piper
