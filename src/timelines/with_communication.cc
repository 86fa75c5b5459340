#include "timelines/with_communication.h"

#include <algorithm>
#include <map>

#include "base/invariant.h"
#include "timelines/each_op.h"
#include "timelines/rank_table.h"

namespace piper {
namespace {

using Actions = std::vector<TimelineAction>;

Actions hold_stages(const Actions& row, size_t most) {
  std::vector<int> held;
  Actions out;
  const auto next_stages = [&](size_t from) {
    std::vector<int> next;
    for (size_t i = from; i < row.size() && next.size() < most; ++i)
      for_each_op(row[i], [&](const TimelineOp& op) {
        const bool room = next.size() < most || i == from;  // both parts of a pair need theirs
        if (room && std::ranges::find(next, op.stage) == next.end()) next.push_back(op.stage);
      });
    return next;
  };
  for (size_t i = 0; i < row.size(); ++i) {
    const std::vector<int> next = next_stages(i);
    const auto not_next = [&](int stage) { return std::ranges::find(next, stage) == next.end(); };
    for (const int stage : held)
      if (not_next(stage)) out.push_back(CommAction{stage, CommKind::Reshard});
    std::erase_if(held, not_next);
    for (const int stage : next) {
      if (std::ranges::find(held, stage) != held.end()) continue;
      held.push_back(stage);
      out.push_back(CommAction{stage, CommKind::Unshard});
    }
    out.push_back(row[i]);
  }
  for (const int stage : held) out.push_back(CommAction{stage, CommKind::Reshard});
  return out;
}

bool completes_gradient(const TimelineOp& op) {
  return op.pass == Pass::B || op.pass == Pass::BW;
}

/// Ranks take one action each in turn, if what it needs has arrived; what they send is received at once.
class Transfers {
 public:
  explicit Transfers(const ActionTimeline& timeline)
      : timeline_(timeline), ranks_(strip(timeline)), next_(timeline.ranks.size(), 0) {
    out_.ranks.resize(timeline.ranks.size());
    forward_.resize(ranks_.size());
    backward_.resize(ranks_.size());
  }

  ActionTimeline run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t rank = 0; rank < next_.size(); ++rank) {
        if (next_[rank] == timeline_.ranks[rank].size() || !ready(timeline_.ranks[rank][next_[rank]])) continue;
        take(rank, timeline_.ranks[rank][next_[rank]++]);
        moved = true;
      }
    }
    for (size_t rank = 0; rank < next_.size(); ++rank)
      invariant(next_[rank] == timeline_.ranks[rank].size(), "a valid timeline runs to its end");
    return std::move(out_);
  }

 private:
  bool ready(const TimelineAction& action) const {
    bool all = true;
    for_each_op(action, [&](const TimelineOp& op) {
      if (op.pass == Pass::F && op.stage > 0) all &= forward_[ranks_.index(op.stage - 1, op.microbatch)];
      if ((op.pass == Pass::B || op.pass == Pass::BI) && op.stage + 1 < ranks_.stages())
        all &= backward_[ranks_.index(op.stage + 1, op.microbatch)];
    });
    return all;
  }

  void take(size_t rank, const TimelineAction& action) {
    out_.ranks[rank].push_back(action);
    for_each_op(action, [&](const TimelineOp& op) {
      if (op.pass == Pass::BW) return;
      const bool forward = op.pass == Pass::F;
      (forward ? forward_ : backward_)[ranks_.index(op.stage, op.microbatch)] = true;
      const int other = op.stage + (forward ? 1 : -1);
      if (other < 0 || other == ranks_.stages()) return;
      const auto receiver = static_cast<size_t>(ranks_.rank(other, op.microbatch));
      if (receiver == rank) return;
      const CommAction send{op.stage, forward ? CommKind::SendF : CommKind::SendB, op.microbatch};
      out_.ranks[rank].push_back(send);
      out_.ranks[receiver].push_back(partner(send));
    });
  }

  const ActionTimeline& timeline_;
  RankTable ranks_;
  std::vector<size_t> next_;
  std::vector<bool> forward_, backward_;  // done, by stage and microbatch
  ActionTimeline out_;
};

}  // namespace

Timeline merge_backward(const Timeline& timeline) {
  Timeline out;
  for (const auto& row : timeline.ranks) {
    auto& merged = out.ranks.emplace_back();
    for (const TimelineCell& cell : row) {
      const TimelineOp& op = cell.first;
      if (op.pass == Pass::BW && !cell.second && !merged.empty() &&
          merged.back() == TimelineCell{{op.stage, Pass::BI, op.microbatch}, {}})
        merged.back().first.pass = Pass::B;
      else
        merged.push_back(cell);
    }
  }
  return out;
}

ActionTimeline insert_unshards(ActionTimeline timeline, int active_stages) {
  for (Actions& row : timeline.ranks) row = hold_stages(row, static_cast<size_t>(std::max(1, active_stages)));
  return timeline;
}

ActionTimeline insert_reductions(ActionTimeline timeline) {
  for (Actions& row : timeline.ranks) {
    std::map<int, int> due;  // backwards to come, by stage
    for (const TimelineAction& action : row)
      for_each_op(action, [&](const TimelineOp& op) { due[op.stage] += completes_gradient(op); });
    Actions out;
    for (const TimelineAction& action : row) {
      out.push_back(action);
      for_each_op(action, [&](const TimelineOp& op) {
        if (completes_gradient(op) && --due[op.stage] == 0) out.push_back(CommAction{op.stage, CommKind::ReduceGrad});
      });
    }
    row = std::move(out);
  }
  return timeline;
}

ActionTimeline insert_transfers(const ActionTimeline& timeline) {
  return Transfers(timeline).run();
}

ActionTimeline defer_receives(const ActionTimeline& timeline) {
  const RankTable ranks(strip(timeline));
  ActionTimeline out;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    Actions& row = out.ranks.emplace_back();
    std::vector<CommAction> waiting;
    const auto release = [&](auto wanted) {
      for (const CommAction& receive : waiting)
        if (wanted(receive)) row.push_back(receive);
      std::erase_if(waiting, wanted);
    };
    const auto peer = [&](const CommAction& action) { return ranks.rank(partner(action).stage, action.microbatch); };
    for (const TimelineAction& action : timeline.ranks[rank]) {
      if (const auto* comm = std::get_if<CommAction>(&action)) {
        if (is_receive(comm->kind)) {
          waiting.push_back(*comm);
          continue;
        }
        if (is_send(comm->kind) && static_cast<int>(rank) < peer(*comm))
          release([&](const CommAction& receive) { return peer(receive) == peer(*comm); });
      }
      for_each_op(action, [&](const TimelineOp& op) {
        if (op.pass == Pass::BW) return;
        const TimelineOp user{op.stage, op.pass == Pass::F ? Pass::F : Pass::B, op.microbatch};
        release([&](const CommAction& receive) { return pass_of(receive) == user; });
      });
      row.push_back(action);
    }
    release([](const CommAction&) { return true; });
  }
  return out;
}

ActionTimeline with_transfers(const Timeline& timeline) {
  return insert_transfers(as_actions(timeline));
}

}  // namespace piper
