// use NAME(stages=stage, microbatches=mb): a timeline of the library orders the stages that place(stages=…) has made.
// It stands for one order per rank; `--emit schedule` prints them.
//   before:  use 1f1b(stages=stage, microbatches=mb)
//   after:   order({stage=0, mb=0, pass=F}, {stage=0, mb=1, pass=F}, {stage=0, mb=0, pass=B}, …)
// use file("zb.csv", …) takes the timeline from a file, which is found from the folder of the schedule.
// Backward of a stage that has none, because nothing is trained there, is left out.
// Illegal: unknown timeline (E315), sizes it is not defined for (E314), a placement that contradicts it (E313).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "directives/directives.h"
#include "directives/list_timeline.h"
#include "directives/placed_stages.h"
#include "schedule/print_argument.h"
#include "schedule/schedule_text.h"
#include "timelines/as_schedule.h"
#include "timelines/library.h"
#include "timelines/load_timeline.h"
#include "timelines/rank_table.h"

namespace piper {
namespace {

/// Every stage stands where the timeline wants it, and different ranks are different devices.
Checked check_placement(const TrainingDag& dag, const Timeline& timeline, const SourceRange& where,
                        const PlacedStages& stages, const std::string& name, const std::string& wanted) {
  std::set<GroupId> taken;
  for (const auto& row : timeline.ranks) {
    std::optional<TimelineOp> first;
    for (const TimelineCell& cell : row) {
      for (const auto& op : {std::optional(cell.first), cell.second}) {
        if (!op) continue;
        if (!first) first = op;
        const GroupId expected = stages.placement(first->stage, first->microbatch),
                      found = stages.placement(op->stage, op->microbatch);
        if (expected != found)
          return error(ErrorCode::E313, where,
                       fmt::format(
                           "use: {} runs {} and {} on one rank, but stage {} is placed on {} and stage {} on {}", name,
                           print(*first), print(*op), first->stage, print_devices(dag.groups[expected].devices),
                           op->stage, print_devices(dag.groups[found].devices)))
              .note(stages.where_placed(op->stage, op->microbatch, "shape"), "placed here")
              .help(fmt::format("this timeline wants {}", wanted));
      }
    }
    if (first && !taken.insert(stages.placement(first->stage, first->microbatch)).second)
      return error(ErrorCode::E313, where,
                   fmt::format("use: {} wants stage {} on devices of its own", name, first->stage))
          .note(stages.where_placed(first->stage, first->microbatch, "along"), "placed here")
          .help("give every rank of the timeline its own devices: place({}, along=pp, stages=…)");
  }
  return Ok{};
}

/// Where to point as the timeline cannot be made: at the option without which it could, else at its name.
SourceRange culprit(const TrainingDag& dag, const Use& use, const TimelineRequest& request, DirectiveId by) {
  const SourceRange named = dag.where(by, {"timeline"});
  TimelineRequest without_group = request, without_limit = request, split = request;
  without_group.group.reset();
  without_limit.memory_limit.reset();
  split.backward = Backward::Split;
  if (request.group && make_timeline(use.timeline, without_group, named)) return dag.where(by, {"group"});
  if (request.memory_limit && make_timeline(use.timeline, without_limit, named)) return dag.where(by, {"memory_limit"});
  if (make_timeline(use.timeline, split, named)) return dag.where(by, {"backward", "timeline"});
  return named;
}

/// `name`, seen from the folder of the file in which it is written.
std::string beside(const SourceRange& where, const std::string& name) {
  if (!where) return name;
  return (std::filesystem::path(where.file->name).parent_path() / name).string();
}

/// The arguments of `place` that put the stages where the timeline has them.
std::string shape_of(const Timeline& timeline) {
  const auto place = place_of(timeline, {});
  if (!place) return "each stage on the devices of its rank";
  return place->ranks.empty() ? print_argument(&Place::shape, *place) : print_argument(&Place::ranks, *place);
}

/// Without backward of stages in which nothing is trained, nor before them: they have none.
Timeline leave_out_untrained(const Timeline& timeline, const PlacedStages& stages) {
  const auto runs = [&](const TimelineOp& op) { return op.pass == Pass::F || stages.has_backward(op.stage); };
  Timeline out;
  for (const auto& row : timeline.ranks) {
    auto& kept = out.ranks.emplace_back();
    for (const TimelineCell& cell : row) {
      const bool first = runs(cell.first), second = cell.second && runs(*cell.second);
      if (first)
        kept.push_back({cell.first, second ? cell.second : std::nullopt});
      else if (second)
        kept.push_back({*cell.second, std::nullopt});
    }
  }
  return out;
}

/// A row for every group that is left of the devices of a rank: each runs its own microbatches in the rank's order.
Timeline on_groups(const Timeline& timeline, const PlacedStages& stages) {
  Timeline out;
  for (const auto& row : timeline.ranks) {
    std::map<GroupId, std::vector<TimelineCell>> rows;
    const auto of = [&](const TimelineOp& op) { return stages.group(op.stage, op.microbatch); };
    for (const TimelineCell& cell : row) {
      const bool together = !cell.second || of(cell.first) == of(*cell.second);
      rows[of(cell.first)].push_back({cell.first, together ? cell.second : std::nullopt});
      if (!together) rows[of(*cell.second)].push_back({*cell.second, std::nullopt});
    }
    for (auto& [group, cells] : rows) out.ranks.push_back(std::move(cells));
  }
  return out;
}

std::vector<Order> as_orders(const Timeline& timeline, const PlacedStages& stages, const Use& use) {
  return orders_of(on_groups(leave_out_untrained(timeline, stages), stages), use.stages, use.microbatches);
}

Result<std::vector<Order>> expand_file(const TrainingDag& dag, const Use& use, DirectiveId by) {
  const SourceRange where = dag.where(by, {"timeline"});
  auto parsed = load_timeline(beside(where, use.file));
  if (!parsed) {
    if (parsed.error().where) return std::move(parsed.error()).note(where, "used here");
    parsed.error().where = where;
    return std::move(parsed.error());
  }
  const Timeline timeline = strip(parsed->actions);
  PIPER_TRY(const PlacedStages stages, PlacedStages::find(dag, use, by));
  const RankTable ranks(timeline);
  const auto differs = [&](std::string_view what, int wanted, int found, std::string help) {
    return error(ErrorCode::E313, where, fmt::format("use: {} has {} {}; there are {}", use.file, wanted, what, found))
        .help(std::move(help));
  };
  if (ranks.stages() != stages.count())
    return differs("stages", ranks.stages(), stages.count(), fmt::format("write stages={} in place", ranks.stages()))
        .note(stages.where_placed(0, 0, "stages"), "placed here");
  if (const int parts = stages.microbatches(); ranks.microbatches() != parts)
    return differs("microbatches", ranks.microbatches(), parts,
                   fmt::format("write parts={} in split", ranks.microbatches()));
  PIPER_CHECK(check_placement(dag, timeline, where, stages, use.file, shape_of(timeline)));
  return as_orders(timeline, stages, use);
}

}  // namespace

Result<std::vector<Order>> expand(const TrainingDag& dag, const Use& use, const Costs& costs, DirectiveId by) {
  const SourceRange where = dag.where(by, {"timeline"});
  if (!use.file.empty()) return expand_file(dag, use, by);
  const TimelineInfo* info = find_timeline(use.timeline);
  TimelineRequest request;
  if (!info) {  // make_timeline knows what to say
    auto unknown = make_timeline(use.timeline, request, where);
    return std::move(unknown.error());
  }
  PIPER_TRY(const PlacedStages stages, PlacedStages::find(dag, use, by));
  if (info->takes_placement) {
    PIPER_TRY(const Timeline timeline, list_timeline(dag, stages, use, costs, by));
    return as_orders(timeline, stages, use);
  }
  std::set<GroupId> groups;
  request.microbatches = stages.microbatches();
  for (int s = 0; s < stages.count(); ++s)
    for (int m = 0; m < request.microbatches; ++m) groups.insert(stages.placement(s, m));
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
  PIPER_CHECK(check_placement(dag, *timeline, where, stages, info->name, shape_of(*timeline)));
  return as_orders(*timeline, stages, use);
}

}  // namespace piper
