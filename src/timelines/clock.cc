#include "timelines/clock.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "timelines/rank_table.h"

namespace piper {
namespace {

/// When a pass of a stage and microbatch has ended, and where.
struct Done {
  double end = -1;
  int rank = -1;
};

class Clock {
 public:
  Clock(const Timeline& timeline, const TimelineCosts& costs, std::optional<double> overlap)
      : timeline_(timeline), costs_(costs), overlap_(overlap) {
    for (const auto& row : timeline.ranks)
      for (const TimelineCell& cell : row)
        for (const auto& op : {std::optional(cell.first), cell.second}) {
          if (!op) continue;
          stages_ = std::max(stages_, op->stage + 1);
          microbatches_ = std::max(microbatches_, op->microbatch + 1);
        }
    forward_.resize(static_cast<size_t>(stages_) * static_cast<size_t>(microbatches_));
    backward_.resize(forward_.size());
  }

  std::vector<std::vector<CellTime>> run() {
    const size_t ranks = timeline_.ranks.size();
    std::vector<std::vector<CellTime>> out(ranks);
    std::vector<double> free(ranks, 0);
    bool moved = true;
    while (moved) {  // every round a rank goes as far as its inputs allow
      moved = false;
      for (size_t r = 0; r < ranks; ++r) {
        while (out[r].size() < timeline_.ranks[r].size()) {
          const TimelineCell& cell = timeline_.ranks[r][out[r].size()];
          double start = free[r];
          if (!ready(cell.first, static_cast<int>(r), start) ||
              (cell.second && !ready(*cell.second, static_cast<int>(r), start)))
            break;
          const double end = start + duration(cell);
          finish(cell.first, static_cast<int>(r), end);
          if (cell.second) finish(*cell.second, static_cast<int>(r), end);
          free[r] = end;
          out[r].push_back({start, end});
          moved = true;
        }
      }
    }
    for (size_t r = 0; r < ranks; ++r)
      invariant(out[r].size() == timeline_.ranks[r].size(), "a valid timeline runs to its end");
    return out;
  }

 private:
  size_t index(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(microbatches_) + static_cast<size_t>(microbatch);
  }

  double duration(const TimelineCell& cell) const {
    if (!cell.second) return duration(cell.first);
    return overlap_ ? *overlap_ : duration(cell.first) + duration(*cell.second);
  }
  double duration(const TimelineOp& op) const {
    const StageCosts costs = costs_.at(op.stage);
    switch (op.pass) {
      case Pass::F:
        return costs.F;
      case Pass::BI:
        return costs.I;
      case Pass::BW:
        return costs.W;
      case Pass::B:
      case Pass::R:
        return costs.I + costs.W;
    }
    return 0;
  }

  /// Raises `start` to when the input has arrived; false if it has not been computed yet.
  bool arrives(const Done& input, int rank, double& start) const {
    if (input.rank < 0) return false;
    start = std::max(start, input.end + (input.rank == rank ? 0 : costs_.comm));
    return true;
  }

  bool ready(const TimelineOp& op, int rank, double& start) const {
    const size_t here = index(op.stage, op.microbatch);
    if (op.pass == Pass::F) return op.stage == 0 || arrives(forward_[index(op.stage - 1, op.microbatch)], rank, start);
    if (op.pass == Pass::BW) return arrives(backward_[here], rank, start);
    if (!arrives(forward_[here], rank, start)) return false;
    return op.stage + 1 == stages_ || arrives(backward_[index(op.stage + 1, op.microbatch)], rank, start);
  }

  void finish(const TimelineOp& op, int rank, double end) {
    if (op.pass == Pass::BW) return;
    (op.pass == Pass::F ? forward_ : backward_)[index(op.stage, op.microbatch)] = {end, rank};
  }

  const Timeline& timeline_;
  TimelineCosts costs_;
  std::optional<double> overlap_;
  int stages_ = 0, microbatches_ = 0;
  std::vector<Done> forward_, backward_;
};

}  // namespace

Checked check_costs(const Timeline& timeline, const TimelineCosts& costs, const SourceRange& where) {
  const int stages = RankTable(timeline).stages();
  if (costs.stages.empty() || static_cast<int>(costs.stages.size()) == stages) return Ok{};
  return error(ErrorCode::E314, where,
               fmt::format("costs of {} stages are given; the timeline has {}", costs.stages.size(), stages))
      .help(fmt::format("give {} values, one for every stage", stages));
}

std::vector<std::vector<CellTime>> run_clock(const Timeline& timeline, const TimelineCosts& costs,
                                             std::optional<double> overlap) {
  return Clock(timeline, costs, overlap).run();
}

}  // namespace piper
