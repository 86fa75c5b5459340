// use NAME(stages=stage, microbatches=mb): a timeline of the library orders the stages that place(stages=…) has made.
// It stands for one order per rank; `--emit schedule` prints them.
//   before:  use 1f1b(stages=stage, microbatches=mb)
//   after:   order({stage=0, mb=0, pass=F}, {stage=0, mb=1, pass=F}, {stage=0, mb=0, pass=B}, …)
// use file("zb.csv", …) takes the timeline from a file, which is found from the folder of the schedule.
// Illegal: unknown timeline (E315), sizes it is not defined for (E314), a placement that contradicts it (E313).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/suggest.h"
#include "directives/directives.h"
#include "schedule/schedule_text.h"
#include "schedule/timelines/as_schedule.h"
#include "schedule/timelines/library.h"
#include "schedule/timelines/load_timeline.h"
#include "schedule/timelines/rank_table.h"

namespace piper {
namespace {

Result<const StageTags*> find_stages(const TrainingDag& dag, const Use& use, const SourceRange& where) {
  std::vector<std::string> names;
  for (const StageTags& stages : dag.stages) {
    if (stages.tag == use.stages) {
      for (size_t c = 0; c < stages.of_chunk.size(); ++c)
        if (stages.of_chunk[c] < 0)
          return error(ErrorCode::E313, where,
                       fmt::format("use: chunk {} belongs to no stage", dag.model->chunks[c].name))
              .help("let the place directive with stages=… select everything: place({}, …)");
      for (int s = 0; s < *std::max_element(stages.of_chunk.begin(), stages.of_chunk.end()); ++s)
        if (std::find(stages.of_chunk.begin(), stages.of_chunk.end(), s) == stages.of_chunk.end())
          return error(ErrorCode::E313, where, fmt::format("use: no chunk belongs to {} {}", stages.tag, s))
              .help("number the stages from 0 without gaps");
      return &stages;
    }
    names.push_back(stages.tag);
  }
  return error(ErrorCode::E313, where, fmt::format("use: there are no stages called \"{}\"", use.stages))
      .help(names.empty() ? "make them: place({}, along=pp, stages=4)" : did_you_mean(use.stages, names));
}

Result<int> find_dim(const TrainingDag& dag, const Use& use, const SourceRange& where) {
  std::vector<std::string> names;
  for (size_t d = 0; d < dag.dims.size(); ++d) {
    if (dag.dims[d].name == use.microbatches) return static_cast<int>(d);
    names.push_back(dag.dims[d].name);
  }
  return error(ErrorCode::E313, where, fmt::format("use: the batch is not split along \"{}\"", use.microbatches))
      .help(names.empty() ? "split it: split(batch, parts=8, as=mb)" : did_you_mean(use.microbatches, names));
}

/// The group that runs a stage for a microbatch.
class Stages {
 public:
  Stages(const TrainingDag& dag, const StageTags& tags, size_t dim) : dag_(dag), index_(dag) {
    count = *std::max_element(tags.of_chunk.begin(), tags.of_chunk.end()) + 1;
    first_chunk_.resize(static_cast<size_t>(count));
    for (size_t c = tags.of_chunk.size(); c-- > 0;) first_chunk_[static_cast<size_t>(tags.of_chunk[c])] = ChunkId(c);
    for (size_t d = dim + 1; d < dag.dims.size(); ++d) stride_ *= dag.dims[d].parts;
  }
  GroupId group(int stage, int microbatch) const { return forward(stage, microbatch).group; }
  SourceRange where_placed(int stage, int microbatch) const { return dag_.where(forward(stage, microbatch).placed_by); }
  int count = 0;

 private:
  const Node& forward(int stage, int microbatch) const {
    return dag_[index_.find(first_chunk_[static_cast<size_t>(stage)], Pass::F, microbatch * stride_)];
  }

  const TrainingDag& dag_;
  ComputeIndex index_;
  std::vector<ChunkId> first_chunk_;
  int stride_ = 1;
};

/// Every stage stands where the timeline wants it, and different ranks are different devices.
Checked check_placement(const TrainingDag& dag, const Timeline& timeline, const SourceRange& where,
                        const Stages& stages, const std::string& name, const std::string& wanted) {
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
          return error(ErrorCode::E313, where,
                       fmt::format(
                           "use: {} runs {} and {} on one rank, but stage {} is placed on {} and stage {} on {}", name,
                           print(*first), print(*op), first->stage, print_devices(dag.groups[expected].devices),
                           op->stage, print_devices(dag.groups[found].devices)))
              .note(stages.where_placed(op->stage, op->microbatch), "placed here")
              .help(fmt::format("this timeline wants {}", wanted));
      }
    }
    if (first && !taken.insert(stages.group(first->stage, first->microbatch)).second)
      return error(ErrorCode::E313, where,
                   fmt::format("use: {} wants stage {} on devices of its own", name, first->stage))
          .note(stages.where_placed(first->stage, first->microbatch), "placed here")
          .help("give every rank of the timeline its own devices: place({}, along=pp, stages=…)");
  }
  return Ok{};
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
  if (!place->ranks.empty()) return fmt::format("ranks=[{}]", fmt::join(place->ranks, ", "));
  return fmt::format("shape={}", place->shape == StageShape::V        ? "v"
                                 : place->shape == StageShape::TwoWay ? "two_way"
                                                                      : "loop");
}

Result<std::vector<Order>> expand_file(const TrainingDag& dag, const Use& use, const SourceRange& where) {
  auto parsed = load_timeline(beside(where, use.file));
  if (!parsed) {
    if (parsed.error().where) return std::move(parsed.error()).note(where, "used here");
    parsed.error().where = where;
    return std::move(parsed.error());
  }
  const Timeline timeline = strip(parsed->actions);
  PIPER_TRY(const StageTags* tags, find_stages(dag, use, where));
  PIPER_TRY(const int dim, find_dim(dag, use, where));
  const Stages stages(dag, *tags, static_cast<size_t>(dim));
  const RankTable ranks(timeline);
  const auto differs = [&](std::string_view what, int wanted, int found, std::string help) {
    return error(ErrorCode::E313, where, fmt::format("use: {} has {} {}; there are {}", use.file, wanted, what, found))
        .help(std::move(help));
  };
  if (ranks.stages() != stages.count)
    return differs("stages", ranks.stages(), stages.count, fmt::format("write stages={} in place", ranks.stages()))
        .note(stages.where_placed(0, 0), "placed here");
  if (const int parts = dag.dims[static_cast<size_t>(dim)].parts; ranks.microbatches() != parts)
    return differs("microbatches", ranks.microbatches(), parts,
                   fmt::format("write parts={} in split", ranks.microbatches()));
  PIPER_CHECK(check_placement(dag, timeline, where, stages, use.file, shape_of(timeline)));
  return orders_of(timeline, use.stages, use.microbatches);
}

}  // namespace

Result<std::vector<Order>> expand(const TrainingDag& dag, const Use& use, DirectiveId by) {
  const SourceRange where = dag.where(by);
  if (!use.file.empty()) return expand_file(dag, use, where);
  const TimelineInfo* info = find_timeline(use.timeline);
  TimelineRequest request;
  if (!info) {  // make_timeline knows what to say
    auto unknown = make_timeline(use.timeline, request, where);
    return std::move(unknown.error());
  }
  PIPER_TRY(const StageTags* tags, find_stages(dag, use, where));
  PIPER_TRY(const int dim, find_dim(dag, use, where));
  const Stages stages(dag, *tags, static_cast<size_t>(dim));
  std::set<GroupId> groups;
  request.microbatches = dag.dims[static_cast<size_t>(dim)].parts;
  for (int s = 0; s < stages.count; ++s)
    for (int m = 0; m < request.microbatches; ++m) groups.insert(stages.group(s, m));
  request.ranks = static_cast<int>(groups.size());
  if (info->takes_stages_per_rank) request.stages_per_rank = std::max(1, stages.count / request.ranks);
  request.group = use.group;
  if (use.memory_limit) request.memory_limit = *use.memory_limit;
  const int wanted = stage_count(info->placement, request.ranks,
                                 request.stages_per_rank ? request.stages_per_rank : info->default_stages_per_rank);
  if (wanted != stages.count)
    return error(ErrorCode::E313, where,
                 fmt::format("use: {} on {} groups of devices needs {} stages; there are {}", info->name, request.ranks,
                             wanted, stages.count))
        .note(stages.where_placed(0, 0), "placed here")
        .help(fmt::format("write stages={} in place", wanted));
  PIPER_TRY(const Timeline timeline, make_timeline(use.timeline, request, where));
  PIPER_CHECK(check_placement(dag, timeline, where, stages, info->name, shape_of(timeline)));
  return orders_of(timeline, use.stages, use.microbatches);
}

}  // namespace piper
