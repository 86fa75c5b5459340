#include "timelines/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include "timelines/each_op.h"

namespace piper {
namespace {

/// Where a pass stands in the timeline; both from 0. Without a rank: nowhere.
struct CellIndex {
  int rank = -1;
  int cell = -1;
  explicit operator bool() const { return rank >= 0; }
};

template <class Visit>
void for_each_placed_op(const Timeline& timeline, Visit visit) {
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank)
    for (size_t cell = 0; cell < timeline.ranks[rank].size(); ++cell)
      for_each_op(timeline.ranks[rank][cell], [&](const TimelineOp& op) {
        visit(op, CellIndex{static_cast<int>(rank), static_cast<int>(cell)});
      });
}

std::string print(const TimelineSource& source, const CellIndex& place) {
  return source.name(place.rank, place.cell);
}

/// Points at the cell, or at the whole where nothing stands.
Diagnostic refuse(const TimelineSource& source, const CellIndex& place, std::string message) {
  return error(ErrorCode::E314, place ? source.at(place.rank, place.cell) : source.whole, std::move(message));
}

/// Where every pass of every stage and microbatch stands.
class CellTable {
 public:
  explicit CellTable(const TimelineExtent& extent)
      : extent_(extent), places_(size_t(extent.stages) * size_t(extent.microbatches)) {}

  CellIndex& at(const TimelineOp& op) {
    const size_t row = size_t(op.stage) * size_t(extent_.microbatches) + size_t(op.microbatch);
    return places_[row][static_cast<size_t>(op.pass)];
  }
  CellIndex at(const TimelineOp& op) const { return const_cast<CellTable*>(this)->at(op); }

  /// The backward that a stage before waits for: B or I, whichever is there.
  TimelineOp backward(int stage, int microbatch) const {
    const TimelineOp whole{stage, Pass::B, microbatch};
    return at(whole) ? whole : TimelineOp{stage, Pass::BI, microbatch};
  }

  const TimelineExtent& extent() const { return extent_; }

 private:
  TimelineExtent extent_;
  std::vector<std::array<CellIndex, 4>> places_;  // F, B, BI, BW
};

/// The extent asked for, or what the timeline mentions; refuses passes outside of it.
Result<TimelineExtent> find_extent(const Timeline& timeline, const TimelineSource& source,
                                   const TimelineExtent& asked) {
  TimelineExtent found = {std::max(1, asked.stages), std::max(1, asked.microbatches)};
  std::optional<Diagnostic> problem;
  for_each_placed_op(timeline, [&](const TimelineOp& op, const CellIndex& place) {
    if (problem) return;
    if (op.stage < 0 || op.microbatch < 0 || (asked.stages > 0 && op.stage >= asked.stages) ||
        (asked.microbatches > 0 && op.microbatch >= asked.microbatches))
      problem = refuse(source, place,
                       fmt::format("{} at {} is outside of {} stages and {} microbatches", print(op),
                                   print(source, place), found.stages, found.microbatches));
    else if (op.pass == Pass::R)
      problem = refuse(source, place,
                       fmt::format("{} at {} is a recomputation; a timeline has F, B, I and W only", print(op),
                                   print(source, place)));
    found = {std::max(found.stages, op.stage == INT32_MAX ? op.stage : op.stage + 1),
             std::max(found.microbatches, op.microbatch == INT32_MAX ? op.microbatch : op.microbatch + 1)};
  });
  if (problem) return *std::move(problem);
  return found;
}

/// Too few passes for the extent: finds a missing forward without a table of the (perhaps huge) extent.
Diagnostic first_missing_forward(const Timeline& timeline, const TimelineSource& source, const TimelineExtent& extent) {
  std::vector<TimelineOp> forwards;
  for_each_placed_op(timeline, [&](const TimelineOp& op, const CellIndex&) {
    if (op.pass == Pass::F) forwards.push_back(op);
  });
  std::ranges::sort(forwards);
  forwards.erase(std::unique(forwards.begin(), forwards.end()), forwards.end());
  TimelineOp expected;
  for (const TimelineOp& op : forwards) {
    if (op != expected) break;
    expected.microbatch += 1;
    if (expected.microbatch == extent.microbatches) expected = {expected.stage + 1, Pass::F, 0};
  }
  Diagnostic problem = refuse(source, {}, fmt::format("{} is missing", print(expected)));
  bool told = false;
  for_each_placed_op(timeline, [&](const TimelineOp& op, const CellIndex& place) {
    if (told || op.stage != expected.stage) return;
    problem.notes.push_back(
        {source.at(place.rank, place.cell),
         fmt::format("stage {} is on rank {}: {} at {}", op.stage, place.rank, print(op), print(source, place))});
    told = true;
  });
  return problem;
}

Result<CellTable> find_places(const Timeline& timeline, const TimelineSource& source, const TimelineExtent& extent) {
  size_t ops = 0;
  for_each_placed_op(timeline, [&](const TimelineOp&, const CellIndex&) { ++ops; });
  if (size_t(extent.stages) * size_t(extent.microbatches) > ops) return first_missing_forward(timeline, source, extent);
  CellTable places(extent);
  std::optional<Diagnostic> problem;
  for_each_placed_op(timeline, [&](const TimelineOp& op, const CellIndex& place) {
    CellIndex& first = places.at(op);
    if (first && !problem)
      problem =
          refuse(source, place,
                 fmt::format("{} at {} is there already at {}", print(op), print(source, place), print(source, first)));
    first = place;
  });
  if (problem) return *std::move(problem);
  return places;
}

/// F, and either B or I and W, all on one rank.
Checked check_passes(const CellTable& places, int stage, int microbatch, const TimelineSource& source) {
  const auto at = [&](Pass pass) { return places.at({stage, pass, microbatch}); };
  const auto text = [&](Pass pass) { return print(TimelineOp{stage, pass, microbatch}); };
  const CellIndex forward = at(Pass::F);
  const auto missing = [&](Pass pass) {
    const Pass other = forward ? Pass::F : at(Pass::B) ? Pass::B : at(Pass::BI) ? Pass::BI : Pass::BW;
    if (!at(other)) return refuse(source, {}, fmt::format("{} is missing", text(pass)));
    return refuse(source, at(other),
                  fmt::format("{} is missing; {} is at {}", text(pass), text(other), print(source, at(other))));
  };
  if (!forward) return missing(Pass::F);
  for (const Pass part : {Pass::BI, Pass::BW})
    if (at(Pass::B) && at(part))
      return refuse(source, at(part),
                    fmt::format("{} at {} repeats the work of {} at {}", text(part), print(source, at(part)),
                                text(Pass::B), print(source, at(Pass::B))));
  if (!at(Pass::B) && !at(Pass::BI)) return missing(at(Pass::BW) ? Pass::BI : Pass::B);
  if (!at(Pass::B) && !at(Pass::BW)) return missing(Pass::BW);
  for (const Pass pass : {Pass::B, Pass::BI, Pass::BW})
    if (at(pass) && at(pass).rank != forward.rank)
      return refuse(source, at(pass),
                    fmt::format("{} at {} is on another rank than {} at {}", text(pass), print(source, at(pass)),
                                text(Pass::F), print(source, forward)));
  return Ok{};
}

/// Microbatches take one way through the ranks, or one of two.
Checked check_routes(const CellTable& places, const TimelineSource& source) {
  const auto& [stages, microbatches] = places.extent();
  const auto rank_at = [&](int stage, int microbatch) { return places.at({stage, Pass::F, microbatch}).rank; };
  // The first stage at which two microbatches go to different ranks.
  const auto fork = [&](int a, int b) {
    int stage = 0;
    while (stage < stages && rank_at(stage, a) == rank_at(stage, b)) ++stage;
    return stage;
  };
  std::optional<int> other;  // the first microbatch that does not go the way of microbatch 0
  for (int microbatch = 1; microbatch < microbatches; ++microbatch) {
    const int from_first = fork(0, microbatch);
    if (from_first == stages) continue;
    if (!other) other = microbatch;
    const int from_other = fork(*other, microbatch);
    if (from_other == stages) continue;
    const CellIndex place = places.at({from_other, Pass::F, microbatch});
    const CellIndex zero = places.at({from_first, Pass::F, 0});
    return refuse(source, place,
                  fmt::format("stage {} runs on rank {} for microbatch {} but on rank {} for microbatch {}", from_other,
                              rank_at(from_other, *other), *other, rank_at(from_other, microbatch), microbatch))
        .note(source.at(zero.rank, zero.cell),
              fmt::format("microbatch 0 goes a third way: stage {} on rank {}", from_first, rank_at(from_first, 0)))
        .help("give every stage one rank, or one for each of two directions");
  }
  return Ok{};
}

/// Runs the timeline without a clock: every rank goes on as long as what its next cell needs is done.
class Execution {
 public:
  Execution(const Timeline& timeline, const CellTable& places, const TimelineSource& source)
      : timeline_(timeline),
        places_(places),
        source_(source),
        next_(timeline.ranks.size(), 0),
        queued_(timeline.ranks.size(), 1) {
    for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) queue_.push_back(static_cast<int>(rank));
  }

  Checked run() {
    while (!queue_.empty()) {
      const int rank = queue_.front();
      queue_.pop_front();
      queued_[rank] = 0;
      advance(rank);
    }
    for (size_t rank = 0; rank < next_.size(); ++rank)
      if (!finished(static_cast<int>(rank))) return deadlock(static_cast<int>(rank));
    return Ok{};
  }

 private:
  /// A pass that cannot start, and what it waits for.
  struct Wait {
    TimelineOp op;
    TimelineOp needed;
  };

  bool finished(int rank) const { return next_[rank] == static_cast<int>(timeline_.ranks[rank].size()); }
  const TimelineCell& cell(int rank) const { return timeline_.ranks[rank][next_[rank]]; }

  bool done(const TimelineOp& op) const {
    const CellIndex place = places_.at(op);
    return place.cell < next_[place.rank];
  }

  std::optional<Wait> waits(const TimelineOp& op) const {
    const auto unless_done = [&](const TimelineOp& needed) {
      return done(needed) ? std::nullopt : std::optional(Wait{op, needed});
    };
    if (op.pass == Pass::BW) return unless_done({op.stage, Pass::BI, op.microbatch});
    if (op.pass == Pass::F) return op.stage == 0 ? std::nullopt : unless_done({op.stage - 1, Pass::F, op.microbatch});
    if (const auto own = unless_done({op.stage, Pass::F, op.microbatch})) return own;
    if (op.stage + 1 == places_.extent().stages) return std::nullopt;
    return unless_done(places_.backward(op.stage + 1, op.microbatch));
  }

  std::optional<Wait> waits(const TimelineCell& cell) const {
    if (const auto first = waits(cell.first)) return first;
    return cell.second ? waits(*cell.second) : std::nullopt;
  }

  void advance(int rank) {
    while (!finished(rank) && !waits(cell(rank))) {
      const TimelineCell& ran = cell(rank);
      next_[rank] += 1;
      for_each_op(ran, [&](const TimelineOp& op) { wake_neighbours(op); });
    }
  }

  void wake_neighbours(const TimelineOp& op) {
    if (op.pass == Pass::F && op.stage + 1 < places_.extent().stages)
      wake(places_.at({op.stage + 1, Pass::F, op.microbatch}).rank);
    else if ((op.pass == Pass::B || op.pass == Pass::BI) && op.stage > 0)
      wake(places_.at({op.stage - 1, Pass::F, op.microbatch}).rank);
  }

  void wake(int rank) {
    if (queued_[rank]) return;
    queued_[rank] = 1;
    queue_.push_back(rank);
  }

  /// Follows who waits for whom until a rank comes up again, and tells that cycle.
  Diagnostic deadlock(int rank) const {
    std::vector<int> chain;
    while (std::ranges::find(chain, rank) == chain.end()) {
      chain.push_back(rank);
      rank = places_.at(waits(cell(rank))->needed).rank;
    }
    chain.erase(chain.begin(), std::ranges::find(chain, rank));
    const auto place = [&](int waiting) { return CellIndex{waiting, next_[waiting]}; };
    Diagnostic problem = refuse(source_, place(chain.front()), "deadlock: " + tell(chain.front()));
    for (size_t i = 1; i < chain.size(); ++i)
      problem.notes.push_back({source_.at(chain[i], next_[chain[i]]), tell(chain[i])});
    return problem;
  }

  std::string tell(int rank) const {
    const Wait wait = *waits(cell(rank));
    return fmt::format("{} at {} waits for {}, which comes later at {}", print(wait.op),
                       print(source_, CellIndex{rank, next_[rank]}), print(wait.needed),
                       print(source_, places_.at(wait.needed)));
  }

  const Timeline& timeline_;
  const CellTable& places_;
  const TimelineSource& source_;
  std::vector<int> next_;
  std::vector<char> queued_;
  std::deque<int> queue_;
};

}  // namespace

Checked validate(const Timeline& timeline, const TimelineSource& source, const TimelineExtent& asked) {
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank)
    if (timeline.ranks[rank].empty())
      return refuse(source, {}, fmt::format("rank {} has no passes", rank))
          .help("every rank needs a line with its passes; leave out ranks that have none");
  PIPER_TRY(const TimelineExtent extent, find_extent(timeline, source, asked));
  PIPER_TRY(const CellTable places, find_places(timeline, source, extent));
  for (int stage = 0; stage < extent.stages; ++stage)
    for (int microbatch = 0; microbatch < extent.microbatches; ++microbatch)
      PIPER_CHECK(check_passes(places, stage, microbatch, source));
  PIPER_CHECK(check_routes(places, source));
  return Execution(timeline, places, source).run();
}

}  // namespace piper
