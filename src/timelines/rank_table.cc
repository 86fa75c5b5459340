#include "timelines/rank_table.h"

#include <algorithm>

#include "timelines/each_op.h"

namespace piper {
namespace {

template <class Visit>
void for_each_ranked_op(const Timeline& timeline, Visit visit) {
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank)
    for (const TimelineCell& cell : timeline.ranks[rank])
      for_each_op(cell, [&](const TimelineOp& op) { visit(op, static_cast<int>(rank)); });
}

}  // namespace

RankTable::RankTable(const Timeline& timeline) {
  for_each_ranked_op(timeline, [&](const TimelineOp& op, int) {
    stages_ = std::max(stages_, op.stage + 1);
    microbatches_ = std::max(microbatches_, op.microbatch + 1);
  });
  ranks_.resize(static_cast<size_t>(stages_) * static_cast<size_t>(microbatches_), -1);
  for_each_ranked_op(timeline, [&](const TimelineOp& op, int rank) { ranks_[index(op.stage, op.microbatch)] = rank; });
}

}  // namespace piper
