#include "directives/list_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/local_size.h"
#include "schedule/schedule_text.h"
#include "timelines/list_schedule.h"

namespace piper {
namespace {

/// Ranks are the groups of devices, in the order in which the first microbatch meets them; directions, the different
/// ways that microbatches take.
void set_ways(const PlacedStages& stages, timelines::ListProblem& problem) {
  std::map<GroupId, int> ranks;
  std::map<std::vector<int>, int> directions;
  for (int m = 0; m < stages.microbatches(); ++m) {
    std::vector<int> way;
    for (int s = 0; s < stages.count(); ++s)
      way.push_back(ranks.emplace(stages.group(s, m), static_cast<int>(ranks.size())).first->second);
    const auto [found, fresh] = directions.emplace(way, static_cast<int>(directions.size()));
    if (fresh) problem.rank_of.push_back(way);
    problem.direction_of.push_back(found->second);
  }
  problem.ranks = static_cast<int>(ranks.size());
  problem.microbatches = stages.microbatches();
}

/// Two ranks must not be one device.
Checked check_ranks(const TrainingDag& dag, const PlacedStages& stages, const SourceRange& where) {
  struct User {
    int stage, microbatch;
  };
  std::map<GroupId, User> groups;
  for (int m = 0; m < stages.microbatches(); ++m)
    for (int s = 0; s < stages.count(); ++s) groups.emplace(stages.group(s, m), User{s, m});
  std::map<int, GroupId> taken;  // by device
  for (const auto& [group, user] : groups)
    for (const int device : dag.groups[group].devices) {
      const auto [found, fresh] = taken.emplace(device, group);
      if (fresh) continue;
      const User& other = groups.at(found->second);
      return error(ErrorCode::E313, where,
                   fmt::format("use: stage {} on {} and stage {} on {} share device {}", other.stage,
                               print_devices(dag.groups[found->second].devices), user.stage,
                               print_devices(dag.groups[group].devices), device))
          .note(stages.where_placed(other.stage, other.microbatch), "placed here")
          .note(stages.where_placed(user.stage, user.microbatch), "and here")
          .help("let stages have the same devices or none in common");
    }
  return Ok{};
}

/// Seconds of a stage for one microbatch; I and W of a whole backward are together in I.
struct StageTimes {
  StageCosts costs = {0, 0, 0};
  bool whole_backward = false;
};

Result<StageTimes> times_of(const TrainingDag& dag, const PlacedStages& stages, int stage, ComputeCosts& costs) {
  StageTimes out;
  const auto add = [&](ChunkId chunk, Pass pass, const PassWork* work, double& to) -> Checked {
    if (!work) return Ok{};
    PIPER_TRY(const double seconds, costs.pass(chunk, pass, *work, stages.group(stage, 0)));
    to += stages.slices_per_microbatch() * seconds;
    return Ok{};
  };
  for (const ChunkId id : stages.chunks(stage)) {
    const Chunk& chunk = (*dag.model)[id];
    PIPER_CHECK(add(id, Pass::F, chunk.find(Pass::F), out.costs.F));
    if (const auto parts = backward_parts(chunk)) {
      PIPER_CHECK(add(id, Pass::BI, parts->input, out.costs.I));
      PIPER_CHECK(add(id, Pass::BW, parts->weight, out.costs.W));
    } else {
      PIPER_CHECK(add(id, Pass::B, chunk.find(Pass::B), out.costs.I));
      out.whole_backward = true;
    }
  }
  return out;
}

/// The longest message from a stage to the next one on other devices.
double message_seconds(const TrainingDag& dag, ComputeCosts& costs) {
  double longest = 0;
  for (const Edge& edge : dag.edges) {
    const Node &from = dag[edge.from], &to = dag[edge.to];
    if (from.group == to.group || !edge.item.is_value() || from.tags.slice != 0) continue;
    longest = std::max(longest, costs.transfer(from.group, to.group, written_bytes(dag, from, edge.item.value_id())));
  }
  return longest;
}

}  // namespace

Result<Timeline> list_timeline(const TrainingDag& dag, const PlacedStages& stages, const Use& use, const Costs& given,
                               DirectiveId by) {
  if (use.group)
    return error(ErrorCode::E314, dag.where(by, {"group"}), "list has no groups of microbatches")
        .help("leave the group out, or use interleaved-1f1b or interleaved-zb");
  PIPER_CHECK(check_ranks(dag, stages, dag.where(by, {"timeline"})));
  timelines::ListProblem problem;
  set_ways(stages, problem);
  ComputeCosts costs(dag, given);
  for (int s = 0; s < stages.count(); ++s) {
    PIPER_TRY(const StageTimes times, times_of(dag, stages, s, costs));
    problem.costs.stages.push_back(times.costs);
    problem.whole_backward.push_back(times.whole_backward || use.backward == Backward::Whole);
  }
  problem.costs.comm = message_seconds(dag, costs);
  problem.limit = use.memory_limit ? *use.memory_limit : usual_limit(problem);
  PIPER_CHECK(check_problem(problem, dag.where(by, {"memory_limit", "timeline"})));
  return list_schedule(problem).timeline;
}

}  // namespace piper
