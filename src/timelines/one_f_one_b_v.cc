// 1F1B-V: two chunks per rank on a V in a fixed pattern of six slots per microbatch; two thirds of the memory of 1F1B.
//   rank 0 of 1, 1 microbatch:  0F0 1F0 1B0 0B0
// V, any size. Unit costs: idle 5(p-1) if p % 3 = 1, else about 5p-8; keeps 2(floor(2p/3)+1) activations.
#include <algorithm>
#include <array>
#include <optional>

#include "timelines/generator.h"

namespace piper::timelines {
namespace {

enum Kind { DownF, UpF, UpB, DownB };
constexpr int kinds = 4;
constexpr int v_period = 6;  // slots between a pass and the same pass of the next microbatch

bool goes_forward(int kind) {
  return kind == DownF || kind == UpF;
}
/// F takes one slot, B two.
int length(int kind) {
  return goes_forward(kind) ? 1 : 2;
}

struct StartedPass {
  int kind = 0;
  int microbatch = 0;
};

/// One rank: what starts in which slot, and how many activations are kept after each.
struct StartedRow {
  std::array<std::vector<int>, kinds> starts;     // by microbatch
  std::vector<std::optional<StartedPass>> op_at;  // in its first slot
  std::vector<char> taken;
  std::vector<int> live;
};

class Pattern {
 public:
  Pattern(int ranks, int microbatches) : p_(ranks), m_(microbatches), rows_(ranks) {
    repeat(first_microbatch());
    for (const StartedRow& row : rows_) most_live_ = std::max(most_live_, *std::ranges::max_element(row.live));
  }

  /// Moves every pass to the earliest slot that dependencies and the pattern's own peak allow.
  void compact() {
    for (int slot = 0; slot < horizon_; ++slot)
      for (int r = 0; r < p_; ++r)
        if (const std::optional<StartedPass> op = rows_[r].op_at[slot])
          move(r, *op, slot, goes_forward(op->kind) ? forward_slot(r, *op, slot) : backward_slot(r, *op, slot));
  }

  Timeline timeline() const {
    Timeline timeline;
    for (int r = 0; r < p_; ++r) {
      auto& cells = timeline.ranks.emplace_back();
      for (const std::optional<StartedPass>& op : rows_[r].op_at) {
        if (!op) continue;
        const int chunk = op->kind == DownF || op->kind == DownB ? 0 : 1;
        const Pass pass = goes_forward(op->kind) ? Pass::F : Pass::B;
        cells.push_back({{stage_of(StagePlacement::V, r, chunk, p_), pass, op->microbatch}, {}});
      }
    }
    return timeline;
  }

 private:
  using Starts = std::vector<std::array<int, kinds>>;  // by rank

  /// Forwards run down and up the V without a pause; backwards leave three slots free after every third.
  Starts first_microbatch() const {
    Starts starts(p_);
    for (int r = 0; r < p_; ++r) {
      starts[r][DownF] = r;
      starts[r][UpF] = 2 * p_ - 1 - r;
    }
    int slot = 2 * p_ + (p_ % 3 == 0 ? 3 : 0);
    int since_pause = (p_ * 2 + 1) % 3;  // (1 - p) mod 3
    const auto next = [&] {
      const int taken = slot;
      slot += 2;
      if (++since_pause == 3) {
        since_pause = 0;
        slot += 3;
      }
      return taken;
    };
    for (int r = 0; r < p_; ++r) starts[r][UpB] = next();
    for (int r = p_ - 1; r >= 0; --r) starts[r][DownB] = next();
    return starts;
  }

  void repeat(const Starts& starts) {
    horizon_ = starts[0][DownB] + v_period * (m_ - 1) + 2;
    for (int r = 0; r < p_; ++r) {
      StartedRow& row = rows_[r];
      row.op_at.resize(horizon_);
      row.taken.assign(horizon_, 0);
      row.live.assign(horizon_, 0);
      for (int kind = 0; kind < kinds; ++kind)
        for (int i = 0; i < m_; ++i) {
          row.starts[kind].push_back(starts[r][kind] + v_period * i);
          put(row, {kind, i}, row.starts[kind].back());
          row.live[row.starts[kind].back() + length(kind) - 1] += goes_forward(kind) ? 1 : -1;
        }
      for (int slot = 1; slot < horizon_; ++slot) row.live[slot] += row.live[slot - 1];
    }
  }

  static void put(StartedRow& row, const StartedPass& op, int slot) {
    row.op_at[slot] = op;
    for (int i = 0; i < length(op.kind); ++i) row.taken[slot + i] = 1;
  }

  /// The first slot after what the pass needs, and after the same pass of the microbatch before.
  int earliest(int r, const StartedPass& op) const {
    const auto after = [&](int rank, int kind) { return rows_[rank].starts[kind][op.microbatch] + length(kind); };
    const int same = op.microbatch == 0 ? 0 : rows_[r].starts[op.kind][op.microbatch - 1] + 1;
    const auto with = [&](int rank, int kind) { return std::max(same, after(rank, kind)); };
    switch (op.kind) {
      case DownF:
        return r == 0 ? same : with(r - 1, DownF);
      case UpF:
        return r == p_ - 1 ? with(r, DownF) : with(r + 1, UpF);
      case UpB:
        return r == 0 ? with(r, UpF) : with(r - 1, UpB);
      default:
        return r == p_ - 1 ? with(r, UpB) : with(r + 1, DownB);
    }
  }

  int backward_slot(int r, const StartedPass& op, int slot) const {
    const std::vector<char>& taken = rows_[r].taken;
    int x = earliest(r, op);
    while (x < slot && (taken[x] || taken[x + 1])) ++x;
    return std::min(x, slot);
  }

  int forward_slot(int r, const StartedPass& op, int slot) const {
    const StartedRow& row = rows_[r];
    int first_free = earliest(r, op);
    while (first_free < slot && row.taken[first_free]) ++first_free;
    int y = slot;
    while (y > first_free && row.live[y - 1] < most_live_) --y;
    while (y < slot && row.taken[y]) ++y;
    return y;
  }

  void move(int r, const StartedPass& op, int from, int to) {
    if (to >= from) return;
    StartedRow& row = rows_[r];
    row.op_at[from].reset();
    for (int i = 0; i < length(op.kind); ++i) row.taken[from + i] = 0;
    put(row, op, to);
    row.starts[op.kind][op.microbatch] = to;
    const int last = length(op.kind) - 1;
    for (int slot = to + last; slot < from + last; ++slot) row.live[slot] += goes_forward(op.kind) ? 1 : -1;
  }

  const int p_;
  const int m_;
  int horizon_ = 0;
  int most_live_ = 0;
  std::vector<StartedRow> rows_;
};

Timeline generate_one_f_one_b_v(const TimelineRequest& request) {
  Pattern pattern(request.ranks, request.microbatches);
  pattern.compact();
  return pattern.timeline();
}

}  // namespace

Generator one_f_one_b_v() {
  return {{.name = "1f1b-v",
           .title = "1F1B-V",
           .paper = "Qi et al. 2024, arXiv:2405.15362",
           .placement = StagePlacement::V,
           .default_stages_per_rank = 2,
           .sizes = "any",
           .bubble = "5(p-1) for p % 3 = 1, else about 5p-8, at f = i = w = 1",
           .memory = "2(floor(2p/3)+1)"},
          any_size,
          generate_one_f_one_b_v};
}

}  // namespace piper::timelines
