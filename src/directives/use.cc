// use NAME(stages=stage, microbatches=mb): a timeline of the library orders the stages that place(stages=…) has made.
// It stands for one order per rank; `--emit schedule` prints them.
//   before:  use 1f1b(stages=stage, microbatches=mb)
//   after:   order({stage=0, mb=0, pass=F}, {stage=0, mb=1, pass=F}, {stage=0, mb=0, pass=B}, …)
// Illegal: unknown timeline (E315), sizes it is not defined for (E314), a placement that contradicts it (E313).
#include <fmt/format.h>

#include <set>

#include "directives/directives.h"
#include "directives/list_timeline.h"
#include "directives/placed_stages.h"
#include "schedule/schedule_text.h"
#include "schedule/timelines/as_schedule.h"
#include "schedule/timelines/library.h"

namespace piper {
namespace {

/// Every stage stands where the timeline wants it, and different ranks are different devices.
Checked check_placement(const TrainingDag& dag, const Timeline& timeline, const PlacedStages& stages,
                        const TimelineInfo& info, const SourceRange& where) {
  std::set<GroupId> taken;
  for (const auto& row : timeline.ranks) {
    std::optional<TimelineOp> first;
    for (const TimelineCell& cell : row) {
      for (const auto& op : {std::optional(cell.first), cell.second}) {
        if (!op) continue;
        if (!first) first = op;
        const GroupId expected = stages.group(first->stage, first->microbatch),
                      found = stages.group(op->stage, op->microbatch);
        if (expected != found)
          return error(
                     ErrorCode::E313, where,
                     fmt::format("use: {} runs {} and {} on one rank, but stage {} is placed on {} and stage {} on {}",
                                 info.name, print(*first), print(*op), first->stage,
                                 print_devices(dag.groups[expected].devices), op->stage,
                                 print_devices(dag.groups[found].devices)))
              .note(stages.where_placed(op->stage, op->microbatch, "shape"), "placed here")
              .help(fmt::format("this timeline wants shape={}", info.placement == Placement::V        ? "v"
                                                                : info.placement == Placement::TwoWay ? "two_way"
                                                                                                      : "loop"));
      }
    }
    if (first && !taken.insert(stages.group(first->stage, first->microbatch)).second)
      return error(ErrorCode::E313, where,
                   fmt::format("use: {} wants stage {} on devices of its own", info.name, first->stage))
          .note(stages.where_placed(first->stage, first->microbatch, "along"), "placed here")
          .help("give every rank of the timeline its own devices: place({}, along=pp, stages=…)");
  }
  return Ok{};
}

/// Where to point as the timeline cannot be made: at the option without which it could, else at its name.
SourceRange culprit(const TrainingDag& dag, const Use& use, const TimelineRequest& request, DirectiveId by) {
  const SourceRange named = dag.where(by, {"timeline"});
  TimelineRequest without_group = request, without_limit = request;
  without_group.group.reset();
  without_limit.memory_limit.reset();
  if (request.group && make_timeline(use.timeline, without_group, named)) return dag.where(by, {"group"});
  if (request.memory_limit && make_timeline(use.timeline, without_limit, named)) return dag.where(by, {"memory_limit"});
  return named;
}

}  // namespace

Result<std::vector<Order>> expand(const TrainingDag& dag, const Use& use, const Costs& costs, DirectiveId by) {
  const SourceRange where = dag.where(by, {"timeline"});
  const TimelineInfo* info = find_timeline(use.timeline);
  TimelineRequest request;
  if (!info) {  // make_timeline knows what to say
    auto unknown = make_timeline(use.timeline, request, where);
    return std::move(unknown.error());
  }
  PIPER_TRY(const PlacedStages stages, PlacedStages::find(dag, use, by));
  if (info->takes_placement) {
    PIPER_TRY(const Timeline timeline, list_timeline(dag, stages, use, costs, where));
    return orders_of(timeline, use.stages, use.microbatches);
  }
  std::set<GroupId> groups;
  request.microbatches = stages.microbatches();
  for (int s = 0; s < stages.count(); ++s)
    for (int m = 0; m < request.microbatches; ++m) groups.insert(stages.group(s, m));
  request.ranks = static_cast<int>(groups.size());
  if (info->takes_stages_per_rank) request.stages_per_rank = std::max(1, stages.count() / request.ranks);
  request.group = use.group;
  if (use.memory_limit) request.memory_limit = *use.memory_limit;
  request.backward = use.backward;
  const int wanted = stage_count(info->placement, request.ranks,
                                 request.stages_per_rank ? request.stages_per_rank : info->default_stages_per_rank);
  if (wanted != stages.count())
    return error(ErrorCode::E313, where,
                 fmt::format("use: {} on {} groups of devices needs {} stages; there are {}", info->name, request.ranks,
                             wanted, stages.count()))
        .note(stages.where_placed(0, 0, "stages"), "placed here")
        .help(fmt::format("write stages={} in place", wanted));
  auto timeline = make_timeline(use.timeline, request, where);
  if (!timeline) {
    timeline.error().where = culprit(dag, use, request, by);
    return std::move(timeline.error());
  }
  PIPER_CHECK(check_placement(dag, *timeline, stages, *info, where));
  return orders_of(*timeline, use.stages, use.microbatches);
}

}  // namespace piper
