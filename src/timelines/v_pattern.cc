#include "timelines/v_pattern.h"

#include <algorithm>
#include <compare>
#include <deque>

#include "timelines/slot_row.h"

namespace piper::timelines {
namespace {

constexpr int period = 6;  // three passes of two chunks

bool is_forward(SlotKind kind) {
  return kind == F0 || kind == F1;
}
bool is_input(SlotKind kind) {
  return kind == I1 || kind == I0;
}

struct Visit {
  int slot = 0;
  int rank = 0;
  SlotKind kind = F0;
  int number = 0;
  friend auto operator<=>(const Visit&, const Visit&) = default;
};

using Rows = std::vector<SlotRow>;

/// All passes in the order of their slots; what a pass needs comes before it.
std::vector<Visit> visits(const Rows& rows) {
  std::vector<Visit> all;
  for (size_t r = 0; r < rows.size(); ++r)
    for (const SlotOp& op : rows[r].in_order())
      all.push_back({rows[r].slot(op), static_cast<int>(r), op.kind, op.number});
  std::ranges::sort(all);
  return all;
}

/// Where on the V a pass gets its input from: another rank for the same pass, or nothing at the turning points.
std::optional<int> source(const Rows& rows, int rank, SlotKind kind) {
  if (kind == W) return std::nullopt;
  const int other = kind == F0 || kind == I1 ? rank - 1 : rank + 1;
  return other >= 0 && other < static_cast<int>(rows.size()) ? std::optional(other) : std::nullopt;
}

/// The last slot of what the pass needs and of the same pass of the microbatch before; -1 if there is nothing.
/// Of W, what it needs is an I, which its caller knows.
int last_needed(const Rows& rows, const Visit& visit) {
  const SlotRow& row = rows[visit.rank];
  int last = visit.number > 0 ? row.slot({visit.kind, visit.number - 1}) : -1;
  if (visit.kind == W) return last;
  if (const auto from = source(rows, visit.rank, visit.kind))
    last = std::max(last, rows[*from].slot({visit.kind, visit.number}));
  if (visit.kind != F0) last = std::max(last, row.slot({static_cast<SlotKind>(visit.kind - 1), visit.number}));
  return last;
}

/// Starts every pass as soon as its rank is free and what it needs is done, in the same order on every rank.
void retime(Rows& rows) {
  std::vector<std::vector<int>> new_slots(rows.size());
  std::array<std::vector<std::vector<int>>, slot_kinds> done;  // by kind, rank, microbatch
  for (auto& kind : done) kind.resize(rows.size());
  for (const Visit& visit : visits(rows)) {
    int slot = new_slots[visit.rank].empty() ? 0 : new_slots[visit.rank].back() + 1;
    if (const auto from = source(rows, visit.rank, visit.kind))
      slot = std::max(slot, done[visit.kind][*from][visit.number] + 1);
    new_slots[visit.rank].push_back(slot);
    done[visit.kind][visit.rank].push_back(slot);
  }
  for (size_t r = 0; r < rows.size(); ++r) rows[r].retime(new_slots[r]);
}

/// Passes move before the first gradient reaches the start of the pipeline, and again after the last microbatch
/// entered; in between the pattern is already as dense as its memory allows.
class Phases {
 public:
  explicit Phases(int microbatches) : last_microbatch_(microbatches - 1) {}

  enum class Phase { Start, Steady, End };
  Phase next(const Visit& visit) {
    if (steady_is_over_) return Phase::End;
    if (visit.kind == I0 && visit.rank == 0) steady_ = true;
    if (!steady_) return Phase::Start;
    if (visit.kind == F0 && visit.number == last_microbatch_) steady_is_over_ = true;
    return Phase::Steady;
  }

 private:
  int last_microbatch_;
  bool steady_ = false;
  bool steady_is_over_ = false;
};

/// The first round: W are in place and move too.
class SqueezeWithWeights {
 public:
  explicit SqueezeWithWeights(Rows& rows) : rows_(rows) {
    for (const SlotRow& row : rows) {
      live_.push_back(row.live());
      cap_ = std::max(cap_, *std::ranges::max_element(live_.back()));
      auto& inputs = inputs_.emplace_back(row.slots(I1));
      inputs.insert(inputs.end(), row.slots(I0).begin(), row.slots(I0).end());
      std::ranges::sort(inputs);
    }
  }

  void run(int microbatches) {
    Phases phases(microbatches);
    for (const Visit& visit : visits(rows_))
      if (phases.next(visit) != Phases::Phase::Steady) move_forward(visit);
  }

 private:
  void move_forward(const Visit& visit) {
    SlotRow& row = rows_[visit.rank];
    int x = last_needed(rows_, visit) + 1;
    if (visit.kind == W) x = std::max(x, inputs_[visit.rank][visit.number] + 1);
    if (is_forward(visit.kind)) x = std::max(x, first_slot_with_room(visit));
    while (x < visit.slot && !row.is_free(x)) ++x;
    if (x >= visit.slot) return;
    row.move({visit.kind, visit.number}, x);
    follow(visit, x);
  }

  /// From here to its slot one more activation stays within the peak.
  int first_slot_with_room(const Visit& visit) const {
    int slot = visit.slot;
    while (slot > 0 && live_[visit.rank][slot - 1] < cap_) --slot;
    return slot;
  }

  void follow(const Visit& visit, int to) {
    const int change = is_forward(visit.kind) ? 1 : visit.kind == W ? -1 : 0;
    for (int slot = to; slot < visit.slot; ++slot) live_[visit.rank][slot] += change;
    if (!is_input(visit.kind)) return;
    std::vector<int>& inputs = inputs_[visit.rank];
    inputs.erase(std::ranges::lower_bound(inputs, visit.slot));
    inputs.insert(std::ranges::lower_bound(inputs, to), to);
  }

  Rows& rows_;
  int cap_ = 0;
  std::vector<std::vector<int>> live_;    // by rank and slot
  std::vector<std::vector<int>> inputs_;  // slots of all I of a rank, ascending
};

/// The second round: only the end moves, and W are thought of as filling the holes.
class SqueezeWithoutWeights {
 public:
  explicit SqueezeWithoutWeights(Rows& rows) : rows_(rows) {
    for (const SlotRow& row : rows) {
      states_.push_back(row.filled());
      cap_ = std::max(cap_, std::ranges::max_element(states_.back(), {}, &FilledState::live)->live);
    }
  }

  void run(int microbatches) {
    Phases phases(microbatches);
    for (const Visit& visit : visits(rows_))
      if (phases.next(visit) == Phases::Phase::End) move_forward(visit);
  }

 private:
  void move_forward(const Visit& visit) {
    SlotRow& row = rows_[visit.rank];
    for (int x = last_needed(rows_, visit) + 1; x < visit.slot; ++x)
      if (row.is_free(x) && moves_within_cap(visit, x)) return row.move({visit.kind, visit.number}, x);
  }

  /// Replays the rank from slot `to` until nothing differs any more; keeps the new states if none exceeds the peak.
  bool moves_within_cap(const Visit& visit, int to) {
    const SlotRow& row = rows_[visit.rank];
    std::vector<FilledState>& states = states_[visit.rank];
    FilledState state = to == 0 ? FilledState{} : states[to - 1];
    std::vector<FilledState> changed;
    for (int slot = to; slot < row.size(); ++slot) {
      const std::optional<SlotOp> moved = SlotOp{visit.kind, visit.number};
      state = SlotRow::step(state, slot == to ? moved : slot == visit.slot ? std::nullopt : row.at(slot));
      if (state.live > cap_) return false;
      if (slot > visit.slot && state == states[slot]) break;
      changed.push_back(state);
    }
    std::ranges::copy(changed, states.begin() + to);
    return true;
  }

  Rows& rows_;
  int cap_ = 0;
  std::vector<std::vector<FilledState>> states_;  // by rank and slot
};

/// The row of a rank with its holes filled with W, those of chunk 1 first.
std::vector<TimelineCell> write_row(const SlotRow& row, int rank, int ranks) {
  std::vector<TimelineCell> cells;
  std::array<std::deque<TimelineOp>, 2> due;  // by chunk
  const auto add_due = [&] {
    for (const int chunk : {1, 0}) {
      if (due[chunk].empty()) continue;
      cells.push_back({due[chunk].front(), {}});
      due[chunk].pop_front();
      return true;
    }
    return false;
  };
  for (int slot = 0; slot < row.size(); ++slot) {
    if (row.is_free(slot)) {
      add_due();
      continue;
    }
    const SlotOp op = *row.at(slot);
    const int chunk = op.kind == F0 || op.kind == I0 ? 0 : 1;
    const int stage = stage_of(StagePlacement::V, rank, chunk, ranks);
    cells.push_back({{stage, is_forward(op.kind) ? Pass::F : Pass::BI, op.number}, {}});
    if (is_input(op.kind)) due[chunk].push_back({stage, Pass::BW, op.number});
  }
  while (add_due()) continue;
  return cells;
}

}  // namespace

Timeline squeeze_v_pattern(const VPattern& pattern, int microbatches) {
  Rows rows;
  for (const auto& first : pattern) rows.emplace_back(first, period, microbatches);
  for (SlotRow& row : rows) row.fill_weights();
  SqueezeWithWeights(rows).run(microbatches);
  retime(rows);

  for (SlotRow& row : rows) row.remove_weights();
  SqueezeWithoutWeights(rows).run(microbatches);
  for (SlotRow& row : rows) row.fill_weights();
  retime(rows);

  Timeline timeline;
  for (size_t r = 0; r < rows.size(); ++r) {
    rows[r].remove_weights();
    timeline.ranks.push_back(write_row(rows[r], static_cast<int>(r), static_cast<int>(rows.size())));
  }
  return timeline;
}

}  // namespace piper::timelines
