#include "timelines/row.h"

#include <algorithm>

#include "base/invariant.h"

namespace piper::timelines {

Row::Row(std::vector<StageOnRank> chunks)
    : chunks_(std::move(chunks)), forwards_(chunks_.size(), 0), backwards_(chunks_.size(), 0) {}

void Row::input(int chunk) {
  const TimelineOp op = next_backward(chunk, Pass::BI);
  add(op);
  due_.push_back({op.stage, Pass::BW, op.microbatch});
}

void Row::weight() {
  invariant(!due_.empty(), "a W is written only when one is due");
  add(due_.front());
  due_.pop_front();
}

void Row::weight(int chunk) {
  const int stage = chunks_[chunk].stage;
  const auto oldest = std::ranges::find(due_, stage, &TimelineOp::stage);
  invariant(oldest != due_.end(), "a W of a chunk is written only when one is due");
  add(*oldest);
  due_.erase(oldest);
}

bool Row::weight_due(int chunk) const {
  return std::ranges::find(due_, chunks_[chunk].stage, &TimelineOp::stage) != due_.end();
}

void Row::pair(int forward_chunk, int backward_chunk) {
  const TimelineOp forward = next_forward(forward_chunk);
  cells_.push_back({forward, next_backward(backward_chunk, Pass::B)});
}

TimelineOp Row::next_forward(int chunk) {
  return {chunks_[chunk].stage, Pass::F, chunks_[chunk].first_microbatch + forwards_[chunk]++};
}

TimelineOp Row::next_backward(int chunk, Pass pass) {
  return {chunks_[chunk].stage, pass, chunks_[chunk].first_microbatch + backwards_[chunk]++};
}

}  // namespace piper::timelines
