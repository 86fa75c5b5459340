// list: the shortest order that a search finds, for stages that differ.
//   rank 1 of 2, 2 microbatches on a line, stage 1 twice as long:  1F0 1I0 1F1 1I1 1W0 1W1
// Any placement and size; two directions need p and m even. Idle time depends on the costs: never more than that of
// another timeline here with the same placement that keeps the limit. Keeps the limit, in activations until W.
#include "timelines/list.h"

#include <fmt/format.h>

#include "base/invariant.h"
#include "timelines/generator.h"
#include "timelines/list_schedule.h"

namespace piper::timelines {
namespace {

StagePlacement placement_of(const TimelineRequest& request) {
  return request.placement.value_or(usual_placement(request.stages_per_rank));
}

Diagnostic refuse(const SourceRange& where, std::string message) {
  return error(ErrorCode::E314, where, std::move(message));
}

Checked check_stages_per_rank(const TimelineRequest& request, const SourceRange& where) {
  const StagePlacement placement = placement_of(request);
  if (placement == StagePlacement::Loop || placement == StagePlacement::W) return Ok{};
  const int expected = usual_stages_per_rank(placement);
  if (request.stages_per_rank == expected) return Ok{};
  return refuse(where, fmt::format("list: placement {} has {} stage{} per rank, not {}", name(placement), expected,
                                   expected == 1 ? "" : "s", request.stages_per_rank))
      .help(fmt::format("use {}, or placement loop or w", expected));
}

Checked check_directions(const TimelineRequest& request, const SourceRange& where) {
  if (placement_of(request) != StagePlacement::TwoWay) return Ok{};
  if (request.ranks % 2 == 0 && request.microbatches % 2 == 0) return Ok{};
  return refuse(where, fmt::format("list: two directions need even numbers of ranks and microbatches, not {} and {}",
                                   request.ranks, request.microbatches))
      .help(fmt::format("use {} ranks and {} microbatches, or placement v", request.ranks + request.ranks % 2,
                        request.microbatches + request.microbatches % 2));
}

Checked check_list(const TimelineRequest& request, const SourceRange& where) {
  PIPER_CHECK(check_stages_per_rank(request, where));
  PIPER_CHECK(check_directions(request, where));
  return check_problem(list_problem(request), where);
}

Timeline generate_list(const TimelineRequest& request) {
  return list_schedule(list_problem(request)).timeline;
}

}  // namespace

StagePlacement usual_placement(int stages_per_rank) {
  return stages_per_rank == 1 ? StagePlacement::Line : stages_per_rank == 2 ? StagePlacement::V : StagePlacement::Loop;
}

int usual_stages_per_rank(StagePlacement placement) {
  switch (placement) {
    case StagePlacement::Line:
      return 1;
    case StagePlacement::Loop:
    case StagePlacement::V:
    case StagePlacement::TwoWay:
      return 2;
    case StagePlacement::W:
      return 4;
  }
  internal_error("a placement has stages on a rank");
}

ListProblem list_problem(const TimelineRequest& request) {
  const StagePlacement placement = placement_of(request);
  const int stages = stage_count(placement, request.ranks, request.stages_per_rank);
  ListProblem problem;
  problem.ranks = request.ranks;
  problem.microbatches = request.microbatches;
  for (int direction = 0; direction < (placement == StagePlacement::TwoWay ? 2 : 1); ++direction) {
    std::vector<int>& way = problem.rank_of.emplace_back();
    for (int s = 0; s < stages; ++s) way.push_back(rank_of(placement, s, request.ranks, direction));
  }
  for (int m = 0; m < request.microbatches; ++m)
    problem.direction_of.push_back(direction_of(placement, m, request.microbatches));
  if (request.costs) problem.costs = *request.costs;
  if (request.backward == Backward::Whole) problem.whole_backward.assign(stages, 1);
  if (request.memory && request.memory->kept_by_F > 0)
    problem.freed_by_I = request.memory->freed_by_I / request.memory->kept_by_F;
  problem.limit = request.memory_limit.value_or(usual_limit(problem));
  return problem;
}

Generator list() {
  return {{.name = "list",
           .title = "List scheduling",
           .paper = "Piper",
           .placement = StagePlacement::Line,
           .default_stages_per_rank = 1,
           .sizes = "any; two-way: p and m even",
           .bubble = "least that a search finds for the costs",
           .memory = "the limit, usually v p; two-way p+1",
           .takes_stages_per_rank = true,
           .takes_memory = true,
           .takes_placement = true,
           .uses_costs = true},
          check_list,
          generate_list};
}

}  // namespace piper::timelines
