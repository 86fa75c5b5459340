#include "schedule/timelines/list_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/saturate.h"
#include "schedule/timelines/list_named.h"
#include "schedule/timelines/list_pass.h"
#include "schedule/timelines/list_search.h"

namespace piper::timelines {
namespace {

/// An order that runs, and how long it takes.
struct Candidate {
  ListOrder order;
  double makespan = std::numeric_limits<double>::infinity();
};

Candidate best_named(const ListProblem& problem, const ListPasses& passes, ListClock& clock) {
  Candidate best;
  for (ListOrder& order : named_orders(problem, passes))
    if (const auto makespan = clock.run(order); makespan && *makespan < best.makespan - passes.rounding)
      best = {std::move(order), *makespan};
  return best;
}

Candidate best_pass(const ListPasses& passes, ListClock& clock, double goal) {
  constexpr double most_visits = 5e6, at_least = 4;
  const double enough = std::max(at_least, most_visits / static_cast<double>(passes.rank.size()));
  Candidate best;
  int made = 0;
  for (const double input_lead : {0.0, 0.5, 1.0, 1e6})
    for (const double depth : {1.0, 0.0, 2.0, 0.5, 3.0, 1.5, 0.25})
      for (const double weight_fit : {1.0, 0.0, 0.5}) {
        if (best.makespan <= goal + passes.rounding || made++ > enough) return best;
        ListOrder order = list_pass(passes, {depth, weight_fit, input_lead});
        if (const auto makespan = clock.run(order); makespan && *makespan < best.makespan - passes.rounding)
          best = {std::move(order), *makespan};
      }
  return best;
}

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
    Candidate pass = best_pass(passes, clock, goal);
    const double visits = std::min(effort.visits, effort.visits_per_pass * static_cast<double>(passes.rank.size()));
    best = search(passes, std::move(named), std::move(pass), goal, visits);
  }
  return {as_timeline(passes, best.order), best.makespan, goal};
}

}  // namespace piper::timelines
