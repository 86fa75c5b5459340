// place(<filter>, devices=[…] | mesh={…}): the selected nodes run together on these devices.
//   before:  %0 = compute embed F mb=0
//   after:   %0 = compute embed F mb=0 @ [0, 1] stream compute
// place(<filter>, along=pp, stages=n, shape=loop|v|two_way): cuts the selected chunks into n contiguous stages, tags
// them, and gives stage s to a coordinate of the axis: s mod p, back and forth (v), both ways at once (two_way), or
// the s-th of ranks=[…].
// place(<filter>, …, stage=k): what is selected is (part of) stage k.
// Illegal: nothing selected (E203); placed elsewhere (E201); unknown device or axis (E205, E208); stages that do not
// fit (E209), a name for them that is taken (E206); an argument about stages without stages (E104).
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/suggest.h"
#include "directives/device_choice.h"
#include "directives/directives.h"
#include "directives/instances.h"
#include "directives/new_tag.h"
#include "ir/select.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// First instance of every stage.
Result<std::vector<int>> stage_starts(const TrainingDag& dag, const Place& place, const Instances& instances,
                                      DirectiveId by) {
  if (place.at.empty()) {
    if (instances.count == 0)
      return error(ErrorCode::E209, dag.where(by, {"stages"}),
                   "stages are made of the instances of a scope, and what is selected has no scopes")
          .help(
              "mark the layers of the model: annotate(\"layer\") around the code of each; in Python also "
              "piper.annotate_modules(model, {\"layer\": \"layers.*\"})");
    if (place.stages > instances.count)
      return error(ErrorCode::E209, dag.where(by, {"stages"}),
                   fmt::format("{} stages need at least {} instances of a scope; \"{}\" has {}", place.stages,
                               place.stages, instances.scope, instances.count))
          .help("use fewer stages, or place the parts one by one: place({embed=0}, devices=[0])");
    return even_starts(instances.count, place.stages);
  }
  std::vector<int> starts = {0};
  starts.insert(starts.end(), place.at.begin(), place.at.end());
  if (static_cast<int>(starts.size()) != place.stages)
    return error(ErrorCode::E209, dag.where(by, {"at"}),
                 fmt::format("{} cuts make {} stages, not {}", place.at.size(), starts.size(), place.stages))
        .help(fmt::format("give {} cut{}, or write stages={}", place.stages - 1, place.stages == 2 ? "" : "s",
                          starts.size()));
  for (size_t s = 1; s < starts.size(); ++s)
    if (starts[s] <= starts[s - 1] || starts[s] >= instances.count)
      return error(ErrorCode::E209, dag.where_number(by, "at", s - 1),
                   fmt::format("cuts must rise and stay between 1 and {}: {} does not", instances.count - 1, starts[s]))
          .help(fmt::format("every cut is the first instance of \"{}\" in its stage", instances.scope));
  return starts;
}

int coordinate(const Place& place, int stage, int ranks, bool second_direction) {
  if (!place.ranks.empty()) return place.ranks[static_cast<size_t>(stage)];
  const int first = stage_coordinate(place.shape, stage, ranks);
  return place.shape == StageShape::TwoWay && second_direction ? ranks - 1 - first : first;
}

Checked check_unplaced(const TrainingDag& dag, const std::vector<NodeId>& nodes, DirectiveId by) {
  for (const NodeId id : nodes)
    if (const Node& node = dag[id]; node.group.valid())
      return error(ErrorCode::E201, dag.where_filter(by),
                   fmt::format("{} is already placed on {}", name_of(dag, id),
                               print_devices(dag.groups[node.group].devices)))
          .note(dag.where_filter(node.placed_by), "first placed here")
          .help("make the filters of the two directives exclude each other");
  return Ok{};
}

/// On which streams of which group.
struct Spot {
  GroupId group;
  StreamId stream, transfers;
};
Spot spot_of(TrainingDag& dag, const Place& place, GroupId group) {
  const bool usual = place.transfers == Place{}.transfers;
  return {group, dag.stream(place.stream), usual ? StreamId() : dag.stream(place.transfers)};
}

void put(TrainingDag& dag, NodeId id, const Spot& spot, DirectiveId by) {
  Node& node = dag[id];
  node.group = spot.group;
  node.stream = spot.stream;
  node.transfers = spot.transfers;
  node.placed_by = by;
}

/// Stages listed one by one: a coordinate for each.
Checked check_ranks(const TrainingDag& dag, const Place& place, int ranks, DirectiveId by) {
  const SourceRange where = dag.where(by, {"ranks"});
  if (static_cast<int>(place.ranks.size()) != place.stages)
    return error(ErrorCode::E209, where,
                 fmt::format("{} ranks are given for {} stages", place.ranks.size(), place.stages))
        .help("give one coordinate of the axis for every stage: stages=4, ranks=[0, 1, 1, 0]");
  for (size_t s = 0; s < place.ranks.size(); ++s)
    if (place.ranks[s] < 0 || place.ranks[s] >= ranks)
      return error(ErrorCode::E209, where,
                   fmt::format("stage {} is to go to rank {}; there are ranks 0 to {} along \"{}\"", s, place.ranks[s],
                               ranks - 1, place.devices.along[0]))
          .help("use coordinates of the axis");
  if (place.shape != StageShape::Loop)
    return error(ErrorCode::E104, dag.where(by, {"shape"}), "place: shape and ranks exclude each other")
        .help("keep one of them");
  return Ok{};
}

/// The tags of this name, made if there are none yet.
StageTags& stage_tags(TrainingDag& dag, const std::string& name) {
  for (StageTags& tags : dag.stages)
    if (tags.tag == name) return tags;
  return dag.stages.emplace_back(StageTags{name, std::vector<int>(dag.model->chunks.size(), -1)});
}

/// Chunks become part of a stage; not of two.
Checked check_stage(const TrainingDag& dag, const std::string& tag, ChunkId chunk, int stage,
                    const SourceRange& where) {
  for (const StageTags& tags : dag.stages) {
    const int of_chunk = tags.of_chunk[chunk.index()];
    if (tags.tag != tag || of_chunk < 0 || of_chunk == stage) continue;
    return error(ErrorCode::E209, where,
                 fmt::format("{} is in {} {} already and cannot be in {}", (*dag.model)[chunk].name, tags.tag, of_chunk,
                             stage))
        .help("give one stage to all parts of the batch");
  }
  return Ok{};
}

Checked check_stages(const TrainingDag& dag, const Place& place, int ranks, DirectiveId by) {
  if (!place.ranks.empty()) {
    PIPER_CHECK(check_ranks(dag, place, ranks, by));
  } else if (place.stages % ranks != 0)
    return error(ErrorCode::E209, dag.where(by, {"stages"}),
                 fmt::format("{} stages do not divide among {} devices along \"{}\"", place.stages, ranks,
                             place.devices.along[0]))
        .help(fmt::format("use a multiple of {}, or ranks=[…]", ranks));
  if (place.shape == StageShape::TwoWay && place.stages != ranks)
    return error(ErrorCode::E209, dag.where(by, {"stages"}),
                 fmt::format("two_way needs one stage per device along \"{}\": {}, not {}", place.devices.along[0],
                             ranks, place.stages))
        .help(fmt::format("write stages={}, or shape=v for two stages per device", ranks));
  if (place.shape == StageShape::TwoWay && (ranks % 2 != 0 || dag.slices() % 2 != 0))
    return error(ErrorCode::E209, dag.where(by, {"shape"}),
                 fmt::format("two_way needs an even number of devices and of slices: there are {} and {}", ranks,
                             dag.slices()))
        .help("half of the microbatches go each way: split(batch, parts=8, as=mb)");
  return Ok{};
}

Result<TrainingDag> place_stages(TrainingDag dag, const Place& place, DirectiveId by) {
  Selector selector(dag);
  PIPER_TRY(const std::vector<ChunkId> chunks, selector.chunks(place.what, "place"));
  PIPER_TRY(const std::vector<NodeId> nodes, selector.nodes(place.what, "place"));
  PIPER_CHECK(check_unplaced(dag, nodes, by));
  if (place.devices.along.size() != 1)
    return error(ErrorCode::E105, place.devices.where, "place: stages go along one axis of the mesh")
        .help("write along=pp");
  const std::string& axis = place.devices.along[0];
  const auto found = std::find_if(dag.mesh.begin(), dag.mesh.end(), [&](const MeshAxis& a) { return a.name == axis; });
  if (found == dag.mesh.end()) {
    std::vector<std::string> names;
    for (const MeshAxis& a : dag.mesh) names.push_back(a.name);
    return error(ErrorCode::E208, place.devices.where, fmt::format("the mesh has no axis \"{}\"", axis))
        .help(did_you_mean(axis, names));
  }
  const int ranks = found->size;
  PIPER_CHECK(check_new_tag(dag, place.as, by));
  PIPER_CHECK(check_stages(dag, place, ranks, by));
  const Instances instances = find_instances(*dag.model, chunks);
  PIPER_TRY(const std::vector<int> starts, stage_starts(dag, place, instances, by));

  std::vector<int> stages(dag.model->chunks.size(), -1);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto next = std::upper_bound(starts.begin(), starts.end(), instances.of_chunk[i]);
    stages[chunks[i].index()] = static_cast<int>(next - starts.begin()) - 1;
  }
  const auto rank_of = [&](NodeId id) {
    const int stage = stages[dag[id].tags.chunk.index()];
    const bool second_half = dag[id].tags.slice >= dag.slices() / 2;
    return coordinate(place, stage, ranks, second_half);
  };
  std::map<int, DeviceGroup> slabs;  // of the ranks that get something: an axis may be long
  for (const NodeId id : nodes) slabs.try_emplace(rank_of(id));
  for (auto& [rank, slab] : slabs) {
    Filter coordinates{{TagCondition{axis, false, {{rank, rank}}, {}, {}}}, {}};
    PIPER_TRY(slab, mesh_slab(dag, coordinates));
  }

  dag.stages.push_back({place.as, stages});
  std::map<int, GroupId> groups;
  for (auto& [rank, slab] : slabs) groups[rank] = dag.groups.intern(std::move(slab));
  Spot spot = spot_of(dag, place, {});
  for (const NodeId id : nodes) {
    spot.group = groups.at(rank_of(id));
    put(dag, id, spot, by);
  }
  return dag;
}

/// Arguments that say something about stages.
Checked check_without_stages(const TrainingDag& dag, const Place& place, DirectiveId by) {
  const auto needs_stages = [&](std::string_view argument) {
    return error(ErrorCode::E104, dag.where(by, {argument}), fmt::format("place: {}=… goes with stages=n", argument));
  };
  const Place usual;
  if (!place.devices.along.empty())
    return needs_stages("along").help("for one group of devices write mesh={pp=0}, or mesh={} for all of them");
  constexpr auto help = "add along=AXIS and stages=n, or take it out";
  if (!place.at.empty()) return needs_stages("at").help(help);
  if (place.shape != usual.shape) return needs_stages("shape").help(help);
  if (!place.ranks.empty()) return needs_stages("ranks").help(help);
  if (place.as != usual.as && !place.stage) return needs_stages("as").help(help);
  return Ok{};
}

}  // namespace

Result<TrainingDag> apply(TrainingDag dag, const Place& place, DirectiveId by) {
  if (dag.devices == 0)
    return error(ErrorCode::E207, dag.where(by), "place: no devices are declared").help("add devices(n) or mesh(…)");
  if (place.stages > 0 && place.stage)
    return error(ErrorCode::E104, dag.where(by, {"stage"}), "place: stage=k and stages=n exclude each other")
        .help("stages=n cuts into several, stage=k says that all of it is one");
  if (place.stages > 0) return place_stages(std::move(dag), place, by);
  PIPER_CHECK(check_without_stages(dag, place, by));
  if (place.devices.lists.size() > 1)
    return error(ErrorCode::E105, place.devices.where, "place: takes one list of devices")
        .help("what is placed together stands in one list; write one place for each");
  DeviceGroup group;
  if (place.devices.mesh) {
    PIPER_TRY(group, mesh_slab(dag, *place.devices.mesh));
  } else {
    PIPER_CHECK(check_devices(dag, place.devices, by));
    group.devices = place.devices.lists[0];
    group.axes = {{"", group.size()}};
  }
  Selector selector(dag);
  PIPER_TRY(const std::vector<NodeId> nodes, selector.nodes(place.what, "place"));
  PIPER_CHECK(check_unplaced(dag, nodes, by));
  if (place.stage) {
    for (const NodeId node : nodes)
      PIPER_CHECK(check_stage(dag, place.as, dag[node].tags.chunk, *place.stage, dag.where(by)));
    StageTags& tags = stage_tags(dag, place.as);
    for (const NodeId node : nodes) tags.of_chunk[dag[node].tags.chunk.index()] = *place.stage;
  }
  const Spot spot = spot_of(dag, place, dag.groups.intern(std::move(group)));
  for (const NodeId node : nodes) put(dag, node, spot, by);
  return dag;
}

}  // namespace piper
