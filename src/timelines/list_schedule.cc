#include "timelines/list_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>

#include "base/saturate.h"
#include "timelines/list_clock.h"
#include "timelines/list_named.h"
#include "timelines/list_pass.h"
#include "timelines/list_search.h"

namespace piper::timelines {
namespace {

/// An order that runs, how long it takes, and what its ranks keep at most, all together.
struct Candidate {
  ListOrder order;
  double makespan = std::numeric_limits<double>::infinity();
  double kept = 0;
};

/// Takes the order if it is shorter, or as short and keeps less.
bool take_if_better(const ListPasses& passes, ListClock& clock, ListOrder&& order, Candidate& best) {
  const auto makespan = clock.run(order);
  if (!makespan || *makespan > best.makespan + passes.rounding) return false;
  const std::vector<double> most = peaks(passes, order);
  const double kept = std::accumulate(most.begin(), most.end(), 0.0);
  if (*makespan >= best.makespan - passes.rounding && kept >= best.kept) return false;
  best = {std::move(order), *makespan, kept};
  return true;
}

Candidate best_named(const ListProblem& problem, const ListPasses& passes, ListClock& clock) {
  Candidate best;
  for (ListOrder& order : named_orders(problem, passes)) take_if_better(passes, clock, std::move(order), best);
  return best;
}

/// Tries passes until the goal is reached or the visits are spent.
class PassTrials {
 public:
  PassTrials(const ListPasses& passes, ListClock& clock, double goal) : passes_(passes), clock_(clock), goal_(goal) {
    for (const double input_lead : {0.0, 0.5, 1.0, 1e6})
      for (const double depth : {0.0, 3.0, 1.5, 1.0, 2.0, 0.5, 0.25})
        for (const double weight_fit : {1.0, 0.0, 0.5})
          all_.push_back({.depth = depth, .weight_fit = weight_fit, .input_lead = input_lead});
  }

  /// First without a pace, then a few weights with several paces, then all weights with the best pace.
  Candidate run() {
    constexpr double most_visits = 5e6, least_trials = 12;
    const double trials = std::max(least_trials, most_visits / static_cast<double>(passes_.size()));
    for (const ListWeights& weights : all_)
      if (!attempt(weights, trials / 4)) break;
    for (ListWeights weights : some)
      for (const double at_once : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
        if (at_once >= 2 * passes_.ranks) break;
        weights.at_once = at_once;
        if (!attempt(weights, 3 * trials / 4)) break;
      }
    const double at_once = best_weights_.at_once;
    for (ListWeights weights : all_) {
      weights.at_once = at_once;
      if (!attempt(weights, trials)) break;
    }
    return std::move(best_);
  }

 private:
  /// What tends to be good where memory is short.
  static constexpr std::array<ListWeights, 6> some = {
      {{3, 0, 0}, {0, 1, 0}, {2, 0, 1}, {1.5, 0, 0}, {2, 0.5, 0.5}, {2, 0, 1e6}}};

  /// False if it is no use to go on.
  bool attempt(const ListWeights& weights, double most_trials) {
    if (best_.makespan <= goal_ + passes_.rounding || made_ >= most_trials) return false;
    ++made_;
    if (take_if_better(passes_, clock_, list_pass(passes_, weights), best_)) best_weights_ = weights;
    return true;
  }

  const ListPasses& passes_;
  ListClock& clock_;
  const double goal_;
  std::vector<ListWeights> all_;
  Candidate best_;
  ListWeights best_weights_;
  int made_ = 0;
};

/// Searches from both, then on from the better one: the heat of each round, and its share of the visits.
Candidate search(const ListPasses& passes, Candidate named, Candidate pass, double goal, double visits) {
  uint64_t seed = 0;
  const auto improved = [&](Candidate& from, double heat, double share) {
    if (from.order.empty()) return;
    from.makespan = improve(passes, from.order, {share * visits, heat, goal, ++seed});
  };
  improved(pass, 0.5, 0.25);
  if (pass.makespan > goal + passes.rounding) improved(named, 0.5, 0.25);
  Candidate best = named.makespan <= pass.makespan ? std::move(named) : std::move(pass);
  for (const double heat : {1.0, 0.25, 1.0, 0.5}) improved(best, heat, 0.125);
  return best;
}

}  // namespace

Checked check_problem(const ListProblem& problem, const SourceRange& where) {
  constexpr int64_t most = int64_t{1} << 24;  // about two gigabytes
  const int64_t passes = saturating_multiply(3 * int64_t{problem.stages()}, problem.microbatches);
  if (passes > most)
    return error(ErrorCode::E113, where, fmt::format("list would order {} passes; it takes at most {}", passes, most))
        .help("use fewer ranks, stages or microbatches, or another timeline");
  if (const int least = least_limit(problem); !(problem.limit >= least))
    return error(ErrorCode::E314, where,
                 fmt::format("list: a microbatch needs room for {} activations on a rank; the memory limit is {}",
                             least, problem.limit))
        .help(fmt::format("use a limit of {} or more", least));
  return Ok{};
}

ListSchedule list_schedule(const ListProblem& problem, const ListEffort& effort) {
  const ListPasses passes(problem);
  ListClock clock(passes);
  const double goal = lower_bound(passes);
  Candidate named = best_named(problem, passes, clock), best;
  if (named.makespan <= goal + passes.rounding) {
    best = std::move(named);
  } else {
    Candidate pass = PassTrials(passes, clock, goal).run();
    const double visits = std::min(effort.visits, effort.visits_per_pass * static_cast<double>(passes.size()));
    best = search(passes, std::move(named), std::move(pass), goal, visits);
  }
  return {as_timeline(passes, best.order), best.makespan, goal};
}

}  // namespace piper::timelines
