#include "timelines/list_named.h"

#include <algorithm>

#include "timelines/generator.h"
#include "timelines/list_clock.h"

namespace piper::timelines {
namespace {

bool same_placement(const ListProblem& problem, StagePlacement placement, int per_rank) {
  if (stage_count(placement, problem.ranks, per_rank) != problem.stages()) return false;
  if ((placement == StagePlacement::TwoWay) != (problem.rank_of.size() == 2)) return false;
  for (size_t direction = 0; direction < problem.rank_of.size(); ++direction)
    for (int s = 0; s < problem.stages(); ++s)
      if (rank_of(placement, s, problem.ranks, static_cast<int>(direction)) != problem.rank_of[direction][s])
        return false;
  for (size_t m = 0; m < problem.direction_of.size(); ++m)
    if (direction_of(placement, static_cast<int>(m), problem.microbatches) != problem.direction_of[m]) return false;
  return true;
}

/// What may be asked of a timeline: with and without costs, with its own memory limit and with that of the problem.
std::vector<TimelineRequest> requests(const ListProblem& problem, const TimelineInfo& info, int per_rank) {
  TimelineRequest plain{.ranks = problem.ranks, .microbatches = problem.microbatches, .stages_per_rank = per_rank};
  std::vector<TimelineRequest> all = {plain};
  if (info.uses_costs) {
    plain.costs = problem.costs;
    all.push_back(plain);
  }
  if (info.takes_memory) {
    plain.memory_limit = problem.limit;
    plain.memory = TimelineMemory{1, problem.freed_by_I};
    all.push_back(plain);
  }
  return all;
}

}  // namespace

std::vector<ListOrder> named_orders(const ListProblem& problem, const ListPasses& passes) {
  constexpr int most_ranks = 1024;  // beyond, timelines on a V take longer to make than they are worth
  std::vector<ListOrder> orders;
  if (problem.ranks > most_ranks) return orders;
  for (const Generator& generator : generators()) {
    const TimelineInfo& info = generator.info;
    if (info.takes_placement) continue;
    const int per_rank = info.takes_stages_per_rank ? problem.stages() / problem.ranks : info.default_stages_per_rank;
    if (per_rank < 1 || !same_placement(problem, info.placement, per_rank)) continue;
    for (const TimelineRequest& request : requests(problem, info, per_rank)) {
      if (!generator.check(request, {})) continue;
      ListOrder order = as_order(passes, generator.generate(request));
      if (passes.has_room(std::ranges::max(peaks(passes, order)))) orders.push_back(std::move(order));
    }
  }
  return orders;
}

}  // namespace piper::timelines
