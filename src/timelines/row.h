// One rank's row, written chunk by chunk: each pass of a chunk takes the chunk's next microbatch.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "timelines/timeline.h"

namespace piper::timelines {

/// A part of the model on a rank: its stage, and the first of the microbatches it sees.
struct StageOnRank {
  int stage = 0;
  int first_microbatch = 0;
};

class Row {
 public:
  explicit Row(std::vector<StageOnRank> chunks);

  void forward(int chunk) { add(next_forward(chunk)); }
  void backward(int chunk) { add(next_backward(chunk, Pass::B)); }
  /// Backward of the input; its W becomes due.
  void input(int chunk);
  /// The oldest due W of the rank, or of one chunk.
  void weight();
  void weight(int chunk);
  /// Forward of one chunk overlapped with backward of another.
  void pair(int forward_chunk, int backward_chunk);

  int forwards(int chunk) const { return forwards_[chunk]; }
  int weights_due() const { return static_cast<int>(due_.size()); }
  bool weight_due(int chunk) const;

  std::vector<TimelineCell> take() { return std::move(cells_); }

 private:
  void add(TimelineOp op) { cells_.push_back({op, {}}); }
  TimelineOp next_forward(int chunk);
  TimelineOp next_backward(int chunk, Pass pass);

  std::vector<StageOnRank> chunks_;
  std::vector<int> forwards_;
  std::vector<int> backwards_;  // B and I count together: each microbatch has one of them
  std::deque<TimelineOp> due_;
  std::vector<TimelineCell> cells_;
};

}  // namespace piper::timelines
