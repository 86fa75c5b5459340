#include "timelines/zb_v_heuristic.h"

#include <algorithm>
#include <array>
#include <deque>

namespace piper::timelines {
namespace {

/// Before which passes a due W may go although it does not fit into the gap; before I of chunk 0 always.
struct VVariant {
  bool before_second_input;
  bool before_forward;
};

struct VRank {
  double end = 0;
  double memory = 0;
  double idle = 0;                                  // gaps after the first pass
  std::array<std::vector<double>, 2> forward_ends;  // by chunk
  std::array<std::vector<double>, 2> input_ends;
  std::deque<TimelineOp> due;
  std::vector<TimelineCell> row;

  int forwards(int chunk) const { return static_cast<int>(forward_ends[chunk].size()); }
  int inputs(int chunk) const { return static_cast<int>(input_ends[chunk].size()); }
};

/// One attempt. Times are compared exactly: a tolerance would choose other orders than the published ones.
class VBuilder {
 public:
  /// `previous_idle`: per rank, of the attempt before; zeros in the first.
  VBuilder(int ranks, int microbatches, const TimelineCosts& costs, const VVariant& variant,
           const std::vector<double>& previous_idle)
      : p_(ranks),
        m_(microbatches),
        c_(costs),
        variant_(variant),
        previous_idle_(previous_idle),
        most_previous_idle_(std::ranges::max(previous_idle)),
        ranks_(ranks) {}

  /// False: with these costs a rank would need what its neighbour has not placed yet.
  bool build() {
    warm_up();
    even_out();
    for (int i = 0; i < 2 * m_ && !stuck_; ++i) {
      one_input_each();
      for (int r = 0; r < p_; ++r) one_forward(r);
    }
    for (int r = 0; r < p_; ++r)
      while (!ranks_[r].due.empty()) weight(r);
    return !stuck_;
  }

  std::vector<double> idle() const {
    std::vector<double> all;
    for (const VRank& rank : ranks_) all.push_back(rank.idle);
    return all;
  }

  Timeline take() {
    Timeline timeline;
    for (VRank& rank : ranks_) timeline.ranks.push_back(std::move(rank.row));
    return timeline;
  }

 private:
  static constexpr double forward_size = 2, input_size = 1, weight_size = 1;
  double limit() const { return 2.0 * p_ * forward_size; }
  int stage(int r, int chunk) const { return stage_of(StagePlacement::V, r, chunk, p_); }
  StageCosts costs(int r, int chunk) const { return c_.at(stage(r, chunk)); }
  /// Time of the W that is next on a rank.
  double due_time(int r) const { return c_.at(ranks_[r].due.front().stage).W; }

  /// The rank that the next F (I) of a chunk hears from, or none at the ends of the V.
  std::optional<int> forward_source(int r, int chunk) const { return neighbour(chunk == 0 ? r - 1 : r + 1); }
  std::optional<int> input_source(int r, int chunk) const { return neighbour(chunk == 0 ? r + 1 : r - 1); }
  std::optional<int> neighbour(int r) const { return r >= 0 && r < p_ ? std::optional(r) : std::nullopt; }

  /// When the next F (I) of a chunk arrives from the neighbour; nothing if it comes from nowhere else.
  std::optional<double> forward_ready(int r, int chunk) const {
    const std::optional<int> source = forward_source(r, chunk);
    if (!source) return std::nullopt;
    return ranks_[*source].forward_ends[chunk][ranks_[r].forwards(chunk)] + c_.comm;
  }
  std::optional<double> input_ready(int r, int chunk) const {
    const std::optional<int> source = input_source(r, chunk);
    if (!source) return std::nullopt;
    return ranks_[*source].input_ends[chunk][ranks_[r].inputs(chunk)] + c_.comm;
  }
  bool forward_placed(int r, int chunk) const {
    const std::optional<int> source = forward_source(r, chunk);
    return !source || ranks_[r].forwards(chunk) < ranks_[*source].forwards(chunk);
  }
  bool input_placed(int r, int chunk) const {
    const std::optional<int> source = input_source(r, chunk);
    return !source || ranks_[r].inputs(chunk) < ranks_[*source].inputs(chunk);
  }

  void run(int r, const TimelineOp& op, double ready, double duration) {
    VRank& rank = ranks_[r];
    const double start = std::max(rank.end, ready);
    if (!rank.row.empty()) most_idle_ = std::max(most_idle_, rank.idle += start - rank.end);
    rank.end = start + duration;
    rank.row.push_back({op, {}});
  }

  void forward(int r, int chunk) {
    if (stuck_ = stuck_ || !forward_placed(r, chunk); stuck_) return;
    const std::optional<double> ready = forward_ready(r, chunk);
    if (ready) fill(r, *ready, variant_.before_forward);
    run(r, {stage(r, chunk), Pass::F, ranks_[r].forwards(chunk)}, ready.value_or(0), costs(r, chunk).F);
    ranks_[r].forward_ends[chunk].push_back(ranks_[r].end);
    ranks_[r].memory += forward_size;
  }

  void input(int r, int chunk) {
    if (stuck_ = stuck_ || !input_placed(r, chunk); stuck_) return;
    const std::optional<double> ready = input_ready(r, chunk);
    if (ready) fill(r, *ready, chunk == 0 || variant_.before_second_input);
    const TimelineOp op = {stage(r, chunk), Pass::BI, ranks_[r].inputs(chunk)};
    run(r, op, ready.value_or(0), costs(r, chunk).I);
    ranks_[r].input_ends[chunk].push_back(ranks_[r].end);
    ranks_[r].due.push_back({op.stage, Pass::BW, op.microbatch});
    ranks_[r].memory -= input_size;
  }

  void weight(int r) {
    run(r, ranks_[r].due.front(), 0, due_time(r));
    ranks_[r].due.pop_front();
    ranks_[r].memory -= weight_size;
  }

  /// How much longer a rank may idle without idling more than the worst.
  double slack(int r) const { return std::max(most_idle_, most_previous_idle_ - previous_idle_[r]) - ranks_[r].idle; }

  /// Uses the time until `t` for W; the last one may end later if `may_delay` and the rank cannot afford the gap.
  void fill(int r, double t, bool may_delay) {
    const VRank& rank = ranks_[r];
    while (!rank.due.empty() && t >= rank.end + due_time(r)) weight(r);
    if (!rank.due.empty() && may_delay && t - rank.end > slack(r)) weight(r);
  }

  /// The first microbatch down and up the V; as many others down as the waiting time and memory allow.
  void warm_up() {
    for (int r = 0; r < p_; ++r) forward(r, 0);
    for (int r = p_ - 1; r >= 0; --r) {
      while (!stuck_ && r < p_ - 1 && ranks_[r].memory + forward_size * (2 + 2 * r) <= limit() &&
             ranks_[r].end + costs(r, 0).F <= ranks_[r + 1].forward_ends[1][0] + c_.comm && ranks_[r].forwards(0) < m_)
        for (int above = 0; above <= r; ++above) forward(above, 0);
      forward(r, 1);
    }
  }

  /// Forwards of both chunks in turn, until no rank is behind the one before.
  void even_out() {
    const auto behind = [&](int r) {
      const VRank &rank = ranks_[r], &before = ranks_[r - 1];
      return rank.forwards(0) + rank.forwards(1) < before.forwards(0) + before.forwards(1) ||
             (rank.forwards(1) <= before.forwards(1) && before.forwards(1) < m_);
    };
    int chunk = 0;
    for (int r = 1; r < p_; ++r)
      for (; !stuck_ && behind(r); chunk = 1 - chunk)
        for (int below = p_ - 1; below >= r; --below)
          if (ranks_[below].forwards(chunk) < m_) forward(below, chunk);
  }

  int next_input_chunk(int r) const {
    const VRank& rank = ranks_[r];
    if (rank.inputs(0) >= rank.inputs(1)) return 1;
    return input_placed(r, 0) || rank.inputs(1) == m_ ? 0 : 1;
  }

  void one_input_each() {
    std::vector<int> chunks;
    for (int r = 0; r < p_; ++r) chunks.push_back(next_input_chunk(r));
    // Each in the direction in which gradients travel.
    for (int r = p_ - 1; r >= 0; --r)
      if (chunks[r] == 0) input(r, 0);
    for (int r = 0; r < p_; ++r)
      if (chunks[r] == 1) input(r, 1);
  }

  std::optional<int> next_forward_chunk(int r) const {
    const VRank& rank = ranks_[r];
    if (rank.forwards(1) == m_) return std::nullopt;
    if (rank.forwards(1) >= rank.forwards(0)) return 0;
    if (forward_placed(r, 1)) return 1;
    return rank.forwards(0) < m_ && forward_placed(r, 0) ? std::optional(0) : std::nullopt;
  }

  void one_forward(int r) {
    const std::optional<int> chunk = next_forward_chunk(r);
    if (!chunk) return;
    while (ranks_[r].memory + forward_size > limit() && !ranks_[r].due.empty()) weight(r);
    forward(r, *chunk);
  }

  const int p_;
  const int m_;
  const TimelineCosts c_;
  const VVariant variant_;
  const std::vector<double> previous_idle_;
  const double most_previous_idle_;
  std::vector<VRank> ranks_;
  double most_idle_ = 0;  // of all ranks
  bool stuck_ = false;
};

/// The best order found so far and the longest idle time of a rank in it.
struct Best {
  std::optional<double> idle;
  Timeline timeline;
};

}  // namespace

std::optional<Timeline> zb_v_heuristic(int ranks, int microbatches, const TimelineCosts& costs) {
  Best best;
  for (const bool before_second_input : {true, false})
    for (const bool before_forward : {true, false}) {
      std::vector<double> idle(ranks, 0);
      std::optional<double> shortest;
      while (true) {
        VBuilder builder(ranks, microbatches, costs, {before_second_input, before_forward}, idle);
        if (!builder.build()) break;
        idle = builder.idle();
        const double longest = *std::ranges::max_element(idle);
        if (shortest && longest >= *shortest) break;
        shortest = longest;
        if (!best.idle || longest < *best.idle) best = {longest, builder.take()};
      }
    }
  if (!best.idle) return std::nullopt;
  return std::move(best.timeline);
}

}  // namespace piper::timelines
