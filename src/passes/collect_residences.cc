// collect_residences: E204 not placed; E209 a number of a stage left out; E210 passes of one chunk and slice apart;
// E318 groups of unequal size for one chunk.
#include <fmt/format.h>

#include <algorithm>

#include "base/text/scanner.h"
#include "passes/passes.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// `{layer=3, experts=0}`: what a filter would say to select the chunk.
std::string filter_for(const Chunk& chunk) {
  std::string out;
  for (const ScopeTag& tag : chunk.scopes)
    out += fmt::format("{}{}={}", out.empty() ? "" : ", ", as_name(tag.scope), tag.index);
  return "{" + out + "}";
}

Diagnostic not_placed(const TrainingDag& dag, NodeId id) {
  const std::string message = fmt::format("{} is not placed on any device", name_of(dag, id));
  for (const Node& other : dag.nodes)
    if (other.group.valid() && other.tags.chunk == dag[id].tags.chunk && other.tags.slice == dag[id].tags.slice)
      return error(ErrorCode::E204, dag.where_filter(other.placed_by), message)
          .help(
              "this filter selects other passes of it; take pass=… out: all passes of a chunk run on the same devices");
  DirectiveId last;  // a place to look at: the end of the list that lacks one
  for (const Node& node : dag.nodes)
    if (node.placed_by.valid() && (!last.valid() || last < node.placed_by)) last = node.placed_by;
  return error(ErrorCode::E204, dag.where_filter(last), message)
      .help(fmt::format(
          "no place directive selects it; add place({}, …), or let another filter cover it: {{}} selects everything",
          filter_for((*dag.model)[dag[id].tags.chunk])));
}

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
    return error(ErrorCode::E318, dag.where_devices(node.placed_by),
                 fmt::format("chunk {} runs on {} and on {}, which differ in size", (*dag.model)[node.tags.chunk].name,
                             print_devices(dag.groups[residences[0].group].devices),
                             print_devices(dag.groups[node.group].devices)))
        .note(dag.where_devices(who_placed(dag, node.tags.chunk, residences[0].group)), "also placed here")
        .help("all groups that run one chunk must have equal axes");
  Residence residence;
  residence.group = node.group;
  residence.transfer_stream = node.transfers.valid() ? node.transfers : dag.stream(Place{}.transfers);
  residences.push_back(residence);
  return Ok{};
}

}  // namespace

/// Stages that were listed one by one, stage=0, stage=1, …: none is missing.
Checked check_stage_numbers(const TrainingDag& dag) {
  for (const StageTags& tags : dag.stages) {
    const auto used = [&](int stage) { return std::ranges::find(tags.of_chunk, stage) != tags.of_chunk.end(); };
    int missing = 0;
    while (used(missing)) ++missing;
    const int last = *std::ranges::max_element(tags.of_chunk);
    if (missing > last) continue;
    const auto is_last = [&](const Node& node) { return tags.of_chunk[node.tags.chunk.index()] == last; };
    const DirectiveId by = std::ranges::find_if(dag.nodes, is_last)->placed_by;
    return error(ErrorCode::E209, dag.where(by, {"stage"}),
                 fmt::format("there is a {} {}, but no {} {}", tags.tag, last, tags.tag, missing))
        .help("number the stages from 0 without gaps");
  }
  return Ok{};
}

DirectiveId who_placed(const TrainingDag& dag, ChunkId chunk, GroupId group) {
  for (const Node& node : dag.nodes)
    if (is_compute(node) && node.tags.chunk == chunk && node.group == group) return node.placed_by;
  return {};
}

Result<TrainingDag> collect_residences(TrainingDag dag) {
  dag.residences.assign(dag.model->chunks.size(), {});
  std::vector<NodeId> first(dag.model->chunks.size() * static_cast<size_t>(dag.slices()));
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    const Node& node = dag.nodes[n];
    if (!node.group.valid()) return not_placed(dag, NodeId(n));
    NodeId& other =
        first[node.tags.chunk.index() * static_cast<size_t>(dag.slices()) + static_cast<size_t>(node.tags.slice)];
    if (!other.valid()) other = NodeId(n);
    if (dag[other].group != node.group)
      return error(ErrorCode::E210, dag.where_filter(node.placed_by),
                   fmt::format("{} is placed on {}, but {} on {}", name_of(dag, NodeId(n)),
                               print_devices(dag.groups[node.group].devices), name_of(dag, other),
                               print_devices(dag.groups[dag[other].group].devices)))
          .note(dag.where_filter(dag[other].placed_by), "placed here")
          .help("all passes of a chunk run on the devices that hold its parameters; take pass=… out of place");
    PIPER_CHECK(note(dag, node));
    dag.nodes[n].transfers = {};
  }
  PIPER_CHECK(check_stage_numbers(dag));
  return dag;
}

}  // namespace piper
