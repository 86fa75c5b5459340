// split(batch, parts=n, as=name): every node becomes n nodes, each on one contiguous part of the batch.
//   before:  %0 = compute embed F
//   after:   %0 = compute embed F mb=0
//            %1 = compute embed F mb=1
// Illegal: a name that is taken (E206); more slices than samples, or samples that do not divide (E213).
#include <fmt/format.h>

#include "directives/directives.h"

namespace piper {
namespace {

constexpr int64_t most_nodes = 50'000'000;

Checked check(const TrainingDag& dag, const Split& split, DirectiveId by) {
  for (const SliceDim& dim : dag.dims)
    if (dim.name == split.as)
      return error(ErrorCode::E206, dag.where(by), fmt::format("the batch is already split along \"{}\"", split.as))
          .note(dag.where(dim.made_by), "first split here")
          .help("use another name after as=");
  for (const Chunk& chunk : dag.model->chunks)
    for (const ScopeTag& tag : chunk.scopes)
      if (tag.scope == split.as)
        return error(ErrorCode::E206, dag.where(by), fmt::format("\"{}\" is a scope of the model", split.as))
            .help("use another name after as=");
  if (split.as == "pass" || split.as == "comm")
    return error(ErrorCode::E206, dag.where(by), fmt::format("\"{}\" has a meaning of its own", split.as))
        .help("use another name after as=");
  const int64_t slices = int64_t{dag.slices()} * split.parts;
  if (dag.model->step.batch % slices != 0)
    return error(ErrorCode::E213, dag.where(by),
                 fmt::format("a batch of {} samples does not divide into {} parts", dag.model->step.batch, slices))
        .help("change parts, or the batch in the model's step");
  if (slices * static_cast<int64_t>(dag.nodes.size()) > most_nodes)
    return error(ErrorCode::E113, dag.where(by), fmt::format("{} parts make more than {} nodes", slices, most_nodes))
        .help("use fewer parts");
  return Ok{};
}

}  // namespace

Result<TrainingDag> apply(TrainingDag dag, const Split& split, DirectiveId by) {
  PIPER_CHECK(check(dag, split, by));
  const size_t nodes = dag.nodes.size(), edges = dag.edges.size();
  std::vector<Node> all_nodes;
  std::vector<Edge> all_edges;
  all_nodes.reserve(nodes * static_cast<size_t>(split.parts));
  all_edges.reserve(edges * static_cast<size_t>(split.parts));
  for (int part = 0; part < split.parts; ++part) {
    const auto moved = [&](NodeId id) { return NodeId(id.index() + nodes * static_cast<size_t>(part)); };
    for (Node node : dag.nodes) {
      node.tags.slice = node.tags.slice * split.parts + part;
      if (split.parts > 1) node.made_by = by;
      all_nodes.push_back(std::move(node));
    }
    for (const Edge& edge : dag.edges) all_edges.push_back({moved(edge.from), moved(edge.to), edge.item, edge.made_by});
  }
  dag.nodes = std::move(all_nodes);
  dag.edges = std::move(all_edges);
  dag.dims.push_back({split.as, split.parts, by});
  return dag;
}

}  // namespace piper
