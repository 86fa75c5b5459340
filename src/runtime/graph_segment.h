// Consecutive computations on one stream, recorded once as a CUDA graph and launched as a whole.
#pragma once

#include <memory>
#include <vector>

#include "plan/free_order.h"
#include "runtime/operations.h"

namespace piper {

class GraphSegment {
 public:
  GraphSegment(Operations& operations, IdRange<OpId> ops, const FreeOrder& frees, std::unique_ptr<CudaGraph> graph);

  /// On its stream: records the graph the first time, and launches it.
  void launch() { launched_ = try_to_launch(); }
  /// False: nothing was launched by the last attempt, and the operations must be issued one by one.
  bool launched() const { return launched_; }

 private:
  bool try_to_launch();
  bool record();
  std::vector<const void*> addresses() const;

  Operations& operations_;
  const IdRange<OpId> ops_;
  std::vector<BufferId> touched_;  // buffers of a step; those from outside may have another address in some steps
  std::vector<std::vector<BufferId>> freed_;  // by operation; those of the last one are freed after the launch
  std::unique_ptr<CudaGraph> graph_;          // null: it cannot be recorded
  bool recorded_ = false, launched_ = false;
  std::vector<const void*> addresses_;  // of its buffers when it was recorded
  std::vector<Frame::Change> changes_;  // its effects on the frame
};

/// The operations of all segments of a device. A computation begins a new one if it waits for another stream, or takes
/// memory that another stream used.
std::vector<IdRange<OpId>> find_segments(const PlanTemplate& program, const FreeOrder& frees);

}  // namespace piper
