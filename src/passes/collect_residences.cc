// collect_residences: E204 not placed; E210 passes of one chunk and slice apart; E318 groups of unequal size for one chunk.
#include <fmt/format.h>

#include "passes/passes.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

Checked note(TrainingDag& dag, const Node& node) {
  std::vector<Residence>& residences = dag.residences[node.tags.chunk.index()];
  for (const Residence& residence : residences)
    if (residence.group == node.group) return Ok{};
  const auto axes = [&](GroupId group) {
    std::vector<int> sizes;
    for (const MeshAxis& axis : dag.groups[group].axes) sizes.push_back(axis.size);
    return sizes;
  };
  if (!residences.empty() && axes(residences[0].group) != axes(node.group))
    return error(ErrorCode::E318, dag.where(node.placed_by),
                 fmt::format("chunk {} runs on {} and on {}, which differ in size", (*dag.model)[node.tags.chunk].name,
                             print_devices(dag.groups[residences[0].group].devices),
                             print_devices(dag.groups[node.group].devices)))
        .help("all groups that run one chunk must have equal axes");
  Residence residence;
  residence.group = node.group;
  const auto& place = std::get<Place>(dag.origins[node.placed_by.index()].body);
  residence.transfer_stream = dag.stream(place.transfers);
  residences.push_back(residence);
  return Ok{};
}

}  // namespace

Result<TrainingDag> collect_residences(TrainingDag dag) {
  dag.residences.assign(dag.model->chunks.size(), {});
  std::vector<NodeId> first(dag.model->chunks.size() * static_cast<size_t>(dag.slices()));
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    const Node& node = dag.nodes[n];
    if (!node.group.valid())
      return error(ErrorCode::E204, {}, fmt::format("{} is not placed on any device", name_of(dag, NodeId(n))))
          .help("place({}, …) selects everything; look for a scope or pass that no filter covers");
    NodeId& other = first[node.tags.chunk.index() * static_cast<size_t>(dag.slices()) + static_cast<size_t>(node.tags.slice)];
    if (!other.valid()) other = NodeId(n);
    if (dag[other].group != node.group)
      return error(ErrorCode::E210, dag.where(node.placed_by),
                   fmt::format("{} is placed on {}, but {} on {}", name_of(dag, NodeId(n)),
                               print_devices(dag.groups[node.group].devices), name_of(dag, other),
                               print_devices(dag.groups[dag[other].group].devices)))
          .note(dag.where(dag[other].placed_by), "placed here")
          .help("all passes of a chunk run on the devices that hold its parameters; take pass=… out of place");
    PIPER_CHECK(note(dag, node));
  }
  return dag;
}

}  // namespace piper
