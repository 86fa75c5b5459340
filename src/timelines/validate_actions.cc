#include "timelines/validate_actions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "timelines/each_op.h"
#include "timelines/rank_table.h"

namespace piper {
namespace {

/// Where an action stands; without a rank: nowhere.
struct Spot {
  int rank = -1;
  int cell = -1;
  explicit operator bool() const { return rank >= 0; }
};

class ActionCheck {
 public:
  ActionCheck(const ParsedTimeline& parsed, const Timeline& passes)
      : rows_(parsed.actions.ranks),
        source_(parsed.source),
        ranks_(passes),
        forward_(ranks_.size()),
        backward_(ranks_.size()) {
    for (auto& spots : comms_) spots.resize(ranks_.size());
  }

  Checked run() {
    PIPER_CHECK(collect());
    if (any_comm_) {
      PIPER_CHECK(check_transfers());
      PIPER_CHECK(check_channels());
      PIPER_CHECK(check_progress());
    }
    for (size_t rank = 0; rank < rows_.size(); ++rank) PIPER_CHECK(check_parameters(static_cast<int>(rank)));
    return Ok{};
  }

 private:
  Diagnostic refuse(const Spot& spot, std::string message) const {
    return error(ErrorCode::E314, source_.at(spot.rank, spot.cell), std::move(message));
  }
  std::string print_at(const Spot& spot) const { return source_.name(spot.rank, spot.cell); }
  std::string tell(const Spot& spot) const {
    return fmt::format("{} at {}", print(rows_[size_t(spot.rank)][size_t(spot.cell)]), print_at(spot));
  }
  /// Where a send or receive stands.
  Spot place(const CommAction& comm) const {
    return comms_[static_cast<size_t>(comm.kind)][ranks_.index(comm.stage, comm.microbatch)];
  }
  bool exists(int stage, int microbatch) const {
    return stage >= 0 && stage < ranks_.stages() && microbatch >= 0 && microbatch < ranks_.microbatches();
  }
  /// The pass that a send comes after or a receive before.
  Spot pass(const CommAction& comm) const {
    const TimelineOp op = pass_of(comm);
    return (op.pass == Pass::F ? forward_ : backward_)[ranks_.index(op.stage, op.microbatch)];
  }

  /// Where every pass, send and receive stands; refuses what stands twice or on a wrong rank.
  Checked collect() {
    for (int rank = 0; rank < static_cast<int>(rows_.size()); ++rank)
      for (int cell = 0; cell < static_cast<int>(rows_[size_t(rank)].size()); ++cell) {
        const Spot spot{rank, cell};
        const TimelineAction& action = rows_[size_t(rank)][size_t(cell)];
        for_each_op(action, [&](const TimelineOp& op) {
          if (op.pass != Pass::BW)
            (op.pass == Pass::F ? forward_ : backward_)[ranks_.index(op.stage, op.microbatch)] = spot;
        });
        const auto* comm = std::get_if<CommAction>(&action);
        if (!comm) continue;
        PIPER_CHECK(check_home(*comm, spot));
        if (!has_microbatch(comm->kind)) continue;
        Spot& first = comms_[static_cast<size_t>(comm->kind)][ranks_.index(comm->stage, comm->microbatch)];
        if (first) return refuse(spot, fmt::format("{} is there already at {}", tell(spot), print_at(first)));
        first = spot;
        any_comm_ = true;
      }
    return Ok{};
  }

  Checked check_home(const CommAction& comm, const Spot& spot) const {
    if (!exists(comm.stage, std::max(0, comm.microbatch)))
      return refuse(spot, fmt::format("{} is outside of {} stages and {} microbatches", tell(spot), ranks_.stages(),
                                      ranks_.microbatches()));
    if (has_microbatch(comm.kind)) {
      const int home = ranks_.rank(comm.stage, comm.microbatch);
      if (home != spot.rank)
        return refuse(
            spot, fmt::format("{} is on the wrong rank: {} runs on rank {}", tell(spot), print(pass_of(comm)), home));
      const CommAction other = partner(comm);
      if (!exists(other.stage, comm.microbatch))
        return refuse(spot, fmt::format("{} has no partner: stage {} is the {}", tell(spot), comm.stage,
                                        ranks_.stages() == 1 ? "only one"
                                        : other.stage < 0    ? "first"
                                                             : "last"))
            .help("take it out");
      if (ranks_.rank(other.stage, comm.microbatch) == home)
        return refuse(spot, fmt::format("{} is not needed: stage {} is on the same rank", tell(spot), other.stage))
            .help("take it out: what stays on a rank is not sent");
      return Ok{};
    }
    for (int microbatch = 0; microbatch < ranks_.microbatches(); ++microbatch)
      if (ranks_.rank(comm.stage, microbatch) == spot.rank) return Ok{};
    return refuse(spot, fmt::format("{} is on the wrong rank: stage {} runs on rank {}", tell(spot), comm.stage,
                                    ranks_.rank(comm.stage, 0)));
  }

  /// Every message that must cross ranks is sent after its pass and received before the pass that uses it.
  Checked check_transfers() const {
    for (int stage = 0; stage + 1 < ranks_.stages(); ++stage)
      for (int microbatch = 0; microbatch < ranks_.microbatches(); ++microbatch) {
        if (ranks_.rank(stage, microbatch) == ranks_.rank(stage + 1, microbatch)) continue;
        PIPER_CHECK(check_message({stage, CommKind::SendF, microbatch}));
        PIPER_CHECK(check_message({stage + 1, CommKind::SendB, microbatch}));
      }
    return Ok{};
  }

  Checked check_message(const CommAction& send) const {
    const CommAction receive = partner(send);
    const auto missing = [&](const CommAction& comm, std::string_view why) {
      const Spot spot = pass(comm);
      return refuse(spot, fmt::format("{} is missing: {} {}", print(comm), tell(spot), why))
          .help(
              fmt::format("add {} on rank {} {} it", print(comm), spot.rank, is_send(comm.kind) ? "after" : "before"));
    };
    if (!place(send))
      return missing(send, fmt::format("computes what stage {} on rank {} needs", receive.stage,
                                       ranks_.rank(receive.stage, send.microbatch)));
    if (!place(receive))
      return missing(receive, fmt::format("needs what stage {} on rank {} computes", send.stage,
                                          ranks_.rank(send.stage, send.microbatch)));
    const Spot sent = place(send), received = place(receive);
    if (sent.cell < pass(send).cell)
      return refuse(sent, fmt::format("{} sends what {} computes later", tell(sent), tell(pass(send))));
    if (received.cell > pass(receive).cell)
      return refuse(received, fmt::format("{} receives what {} uses before", tell(received), tell(pass(receive))));
    return Ok{};
  }

  /// Messages from one stage to the next: received in the order in which they are sent.
  Checked check_channels() const {
    using Channel = std::tuple<int, int, CommKind>;  // rank and stage that send, and what
    std::map<Channel, std::vector<CommAction>> sent;
    std::map<Channel, size_t> received;
    for_each_comm([&](const CommAction& comm, const Spot& spot) {
      if (is_send(comm.kind)) sent[{spot.rank, comm.stage, comm.kind}].push_back(comm);
    });
    std::optional<Diagnostic> problem;
    for_each_comm([&](const CommAction& comm, const Spot& spot) {
      if (problem || !is_receive(comm.kind)) return;
      const CommAction send = partner(comm);
      const Spot sender = place(send);
      const Channel channel{sender.rank, send.stage, send.kind};
      const CommAction& due = sent.at(channel)[received[channel]++];
      if (due == send) return;
      problem = refuse(spot, fmt::format("{} is received out of order: {} comes first", tell(spot), tell(place(due))))
                    .note(source_.at(sender.rank, sender.cell), fmt::format("{} comes later", tell(sender)))
                    .help("messages have no names: receive what a stage sends in the order in which it is sent");
    });
    if (problem) return *std::move(problem);
    return Ok{};
  }

  template <class Visit>
  void for_each_comm(Visit visit) const {
    for (int rank = 0; rank < static_cast<int>(rows_.size()); ++rank)
      for (int cell = 0; cell < static_cast<int>(rows_[size_t(rank)].size()); ++cell)
        if (const auto* comm = std::get_if<CommAction>(&rows_[size_t(rank)][size_t(cell)]);
            comm && has_microbatch(comm->kind))
          visit(*comm, Spot{rank, cell});
  }

  /// Every rank goes on until a pass needs a message whose send has not been reached; passes themselves are valid.
  Checked check_progress() const {
    std::vector<int> next(rows_.size(), 0);
    const auto missing = [&](int rank) -> std::optional<Spot> {
      std::optional<Spot> waits;
      for_each_op(rows_[size_t(rank)][size_t(next[size_t(rank)])], [&](const TimelineOp& op) {
        if (waits || op.pass == Pass::BW) return;
        const CommAction receive{op.stage, op.pass == Pass::F ? CommKind::RecvF : CommKind::RecvB, op.microbatch};
        if (!place(receive)) return;
        const Spot sent = place(partner(receive));
        if (next[size_t(sent.rank)] <= sent.cell) waits = sent;
      });
      return waits;
    };
    const auto finished = [&](int rank) { return next[size_t(rank)] == static_cast<int>(rows_[size_t(rank)].size()); };
    const int ranks = static_cast<int>(rows_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < ranks; ++rank)
        for (; !finished(rank) && !missing(rank); moved = true) ++next[size_t(rank)];
    }
    for (int rank = 0; rank < ranks; ++rank) {
      if (finished(rank)) continue;
      // Follows who waits for whom until a rank comes up again.
      std::vector<int> cycle;
      for (; std::ranges::find(cycle, rank) == cycle.end(); rank = missing(rank)->rank) cycle.push_back(rank);
      cycle.erase(cycle.begin(), std::ranges::find(cycle, rank));
      const auto wait = [&](int waiting) {
        return fmt::format("{} waits for {}, which comes later", tell({waiting, next[size_t(waiting)]}),
                           tell(*missing(waiting)));
      };
      Diagnostic problem = refuse({cycle[0], next[size_t(cycle[0])]}, "deadlock: " + wait(cycle[0]));
      for (size_t i = 1; i < cycle.size(); ++i)
        problem.notes.push_back({source_.at(cycle[i], next[size_t(cycle[i])]), wait(cycle[i])});
      return problem;
    }
    return Ok{};
  }

  /// UNSHARD, RESHARD and REDUCE_GRAD of one rank.
  Checked check_parameters(int rank) const {
    const auto& row = rows_[size_t(rank)];
    std::map<int, std::optional<Spot>> gathered;  // stages that are unsharded anywhere on the rank: since where
    std::map<int, Spot> reduced;
    for (const TimelineAction& action : row)
      if (const auto* comm = std::get_if<CommAction>(&action); comm && comm->kind == CommKind::Unshard)
        gathered[comm->stage] = std::nullopt;
    for (int cell = 0; cell < static_cast<int>(row.size()); ++cell) {
      const Spot spot{rank, cell};
      std::optional<Diagnostic> problem;
      for_each_op(row[size_t(cell)], [&](const TimelineOp& op) {
        if (problem) return;
        if (const auto found = gathered.find(op.stage); found != gathered.end() && !found->second)
          problem = refuse(spot, fmt::format("{} runs while stage {} is sharded", tell(spot), op.stage))
                        .help(fmt::format("unshard it before: {}UNSHARD", op.stage));
        if (const auto found = reduced.find(op.stage); found != reduced.end() && op.pass != Pass::F)
          problem = refuse(spot, fmt::format("{} comes after the gradients of its stage are reduced", tell(spot)))
                        .note(source_.at(rank, found->second.cell), "reduced here");
      });
      if (problem) return *std::move(problem);
      if (const auto* comm = std::get_if<CommAction>(&row[size_t(cell)]))
        PIPER_CHECK(check_stage_action(*comm, spot, gathered, reduced));
    }
    return Ok{};
  }

  Checked check_stage_action(const CommAction& comm, const Spot& spot, std::map<int, std::optional<Spot>>& gathered,
                             std::map<int, Spot>& reduced) const {
    if (comm.kind == CommKind::Unshard) {
      if (const auto& since = gathered[comm.stage])
        return refuse(spot, fmt::format("{}: the stage is unsharded already, at {}", tell(spot), print_at(*since)));
      gathered[comm.stage] = spot;
    }
    if (comm.kind == CommKind::Reshard) {
      const auto found = gathered.find(comm.stage);
      if (found == gathered.end() || !found->second)
        return refuse(spot, fmt::format("{}: the stage is not unsharded", tell(spot)));
      found->second = std::nullopt;
    }
    if (comm.kind == CommKind::ReduceGrad)
      if (const auto [first, fresh] = reduced.emplace(comm.stage, spot); !fresh)
        return refuse(spot, fmt::format("{} is there already at {}", tell(spot), print_at(first->second)));
    return Ok{};
  }

  const std::vector<std::vector<TimelineAction>>& rows_;
  const TimelineSource& source_;
  RankTable ranks_;
  std::vector<Spot> forward_, backward_;    // by stage and microbatch; B or I
  std::array<std::vector<Spot>, 4> comms_;  // sends and receives, by kind, stage and microbatch
  bool any_comm_ = false;
};

}  // namespace

Checked validate(const ParsedTimeline& parsed, const TimelineExtent& extent) {
  const Timeline passes = strip(parsed.actions);
  PIPER_CHECK(validate(passes, strip_source(parsed), extent));
  return ActionCheck(parsed, passes).run();
}

}  // namespace piper
