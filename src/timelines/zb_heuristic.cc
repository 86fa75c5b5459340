#include "timelines/zb_heuristic.h"

#include <algorithm>

namespace piper::timelines {
namespace {

/// What may be decided either way; all combinations are tried.
struct Variant {
  bool start_early_only;    // warm-up: a forward must end, not only start, before the first I can
  bool hold_back_forwards;  // steady: skip a forward that would delay the next rank's I
  bool fill_every_gap;      // a W that does not fit into a gap goes there even on the rank that idles most
};

struct HeuristicRank {
  double first_start = 0;
  double end = 0;
  double memory = 0;
  double idle = 0;  // gaps after the first pass
  std::vector<double> forward_ends;
  std::vector<double> input_ends;
  int weights = 0;
  std::vector<TimelineCell> row;

  int forwards() const { return static_cast<int>(forward_ends.size()); }
  int inputs() const { return static_cast<int>(input_ends.size()); }
  int weights_due() const { return inputs() - weights; }
};

/// One attempt. Times are compared exactly: a tolerance would choose other orders than the published ones.
class Builder {
 public:
  Builder(const ZeroBubbleProblem& problem, const Variant& variant)
      : p_(problem), comm_(problem.costs.comm), variant_(variant), ranks_(problem.ranks) {
    for (int r = 0; r < p_.ranks; ++r) c_.push_back(problem.costs.at(r));
  }

  void build() {
    for (int r = 0; r < p_.ranks; ++r) forward(r);
    warm_up();
    for (int i = 1; i < p_.microbatches; ++i) {
      const std::vector<char> wanted = forwards_wanted();
      for (int r = 0; r < p_.ranks; ++r)
        if (wanted[r]) steady_forward(r);
      for (int r = p_.ranks - 1; r >= 0; --r) steady_input(r, i);
    }
    for (int r = 0; r < p_.ranks; ++r) all_due_weights(r);
  }

  double longest_span() const {
    double longest = 0;
    for (const HeuristicRank& rank : ranks_) longest = std::max(longest, rank.end - rank.first_start);
    return longest;
  }

  Timeline take() {
    Timeline timeline;
    for (HeuristicRank& rank : ranks_) timeline.ranks.push_back(std::move(rank.row));
    return timeline;
  }

 private:
  double forward_size() const { return p_.memory.kept_by_F; }
  double weight_size() const { return p_.memory.kept_by_F - p_.memory.freed_by_I; }
  double limit() const { return p_.limit * p_.memory.kept_by_F; }

  void run(int r, Pass pass, int microbatch, double ready, double duration) {
    HeuristicRank& rank = ranks_[r];
    const double start = std::max(rank.end, ready);
    if (rank.row.empty())
      rank.first_start = start;
    else
      most_idle_ = std::max(most_idle_, rank.idle += start - rank.end);
    rank.end = start + duration;
    rank.row.push_back({{r, pass, microbatch}, {}});
  }

  /// When the next F (I) of a rank can start at the earliest, seen from its neighbour.
  double forward_ready(int r) const { return r == 0 ? 0 : ranks_[r - 1].forward_ends[ranks_[r].forwards()] + comm_; }
  double input_ready(int r) const {
    return r == p_.ranks - 1 ? 0 : ranks_[r + 1].input_ends[ranks_[r].inputs()] + comm_;
  }

  void forward(int r) {
    run(r, Pass::F, ranks_[r].forwards(), forward_ready(r), c_[r].F);
    ranks_[r].forward_ends.push_back(ranks_[r].end);
    ranks_[r].memory += forward_size();
  }

  void input(int r) {
    run(r, Pass::BI, ranks_[r].inputs(), input_ready(r), c_[r].I);
    ranks_[r].input_ends.push_back(ranks_[r].end);
    ranks_[r].memory -= p_.memory.freed_by_I;
  }

  void weight(int r) {
    run(r, Pass::BW, ranks_[r].weights, 0, c_[r].W);
    ranks_[r].weights += 1;
    ranks_[r].memory -= weight_size();
  }

  void all_due_weights(int r) {
    while (ranks_[r].weights_due() > 0) weight(r);
  }

  /// Uses the time until `t` for W; the last one may end later where the rank can afford it.
  void fill(int r, double t) {
    const HeuristicRank& rank = ranks_[r];
    while (rank.weights_due() > 0 && rank.end + c_[r].W <= t) weight(r);
    if (rank.weights_due() > 0 && rank.end < t && (variant_.fill_every_gap || t - rank.end > most_idle_ - rank.idle))
      weight(r);
  }

  /// After one F on every rank: the F that each rank can do until its first I, then that I.
  void warm_up() {
    const std::vector<int> more = warm_up_forwards();
    for (int r = 0; r < p_.ranks; ++r)
      for (int i = 0; i < more[r]; ++i) forward(r);
    for (int r = p_.ranks - 1; r >= 0; --r) input(r);
  }

  std::vector<int> warm_up_forwards() const {
    std::vector<int> more(p_.ranks, 0);
    double t = ranks_.back().end + c_.back().I;
    for (int r = p_.ranks - 2; r >= 0; --r) {
      const double until = t + comm_;
      double x = ranks_[r].end;
      while (1 + more[r] < p_.microbatches && ranks_[r].memory + (more[r] + 1) * forward_size() <= limit() &&
             (variant_.start_early_only ? x + c_[r].F <= until : x < until)) {
        x += c_[r].F;
        more[r] += 1;
      }
      t = std::max(x, until) + c_[r].I;
    }
    for (int r = 1; r < p_.ranks; ++r) {
      while (more[r] > 0 && more[r] >= more[r - 1] && 1 + more[r] < p_.microbatches) more[r] -= 1;
      more[r] = std::min(more[r], more[r - 1]);
    }
    return more;
  }

  /// Which ranks do a forward in this round; one that does needs all later ranks to do so too.
  std::vector<char> forwards_wanted() const {
    std::vector<char> wanted(p_.ranks);
    for (int r = p_.ranks - 1; r >= 0; --r) {
      wanted[r] = ranks_[r].forwards() < p_.microbatches && !(variant_.hold_back_forwards && would_delay_next(r));
      if (r + 1 < p_.ranks) wanted[r] = wanted[r] && wanted[r + 1];
    }
    return wanted;
  }

  bool would_delay_next(int r) const {
    if (r + 1 == p_.ranks || ranks_[r].forwards() < ranks_[r + 1].forwards() + 2) return false;
    const HeuristicRank& rank = ranks_[r];
    const double next_input = ranks_[r + 1].end + c_[r + 1].F + c_[r + 1].I + comm_;
    if (rank.end >= next_input) return true;
    return rank.end + c_[r].F + weights_to_make_room(rank) * c_[r].W > next_input &&
           next_input - rank.end <= most_idle_ - rank.idle;
  }

  int weights_to_make_room(const HeuristicRank& rank) const {
    int count = 0;
    while (count < rank.weights_due() && rank.memory - count * weight_size() + forward_size() > limit()) ++count;
    return count;
  }

  void steady_forward(int r) {
    for (int left = weights_to_make_room(ranks_[r]); left > 0; --left) weight(r);
    if (r > 0) fill(r, forward_ready(r));
    forward(r);
  }

  void steady_input(int r, int microbatch) {
    if (r < p_.ranks - 1) fill(r, ranks_[r + 1].input_ends[microbatch] + comm_);
    if (r == 0 && ranks_[r].forwards() == p_.microbatches) all_due_weights(r);
    input(r);
  }

  const ZeroBubbleProblem& p_;
  std::vector<StageCosts> c_;  // by rank
  const double comm_;
  const Variant variant_;
  std::vector<HeuristicRank> ranks_;
  double most_idle_ = 0;  // of all ranks
};

}  // namespace

Timeline zero_bubble_heuristic(const ZeroBubbleProblem& problem) {
  std::optional<double> shortest;
  Timeline best;
  for (const bool start_early_only : {true, false})
    for (const bool hold_back_forwards : {true, false})
      for (const bool fill_every_gap : {true, false}) {
        Builder builder(problem, {start_early_only, hold_back_forwards, fill_every_gap});
        builder.build();
        if (shortest && builder.longest_span() >= *shortest) continue;
        shortest = builder.longest_span();
        best = builder.take();
      }
  return best;
}

}  // namespace piper::timelines
