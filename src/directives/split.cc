// split(batch, parts=n, as=name): every node becomes n nodes, each on one contiguous part of the batch.
//   before:  %0 = compute embed F
//   after:   %0 = compute embed F mb=0
//            %1 = compute embed F mb=1
// Illegal: a name that is taken (E206); more slices than samples, or samples that do not divide (E213).
#include <fmt/format.h>

#include "directives/directives.h"
#include "directives/new_tag.h"

namespace piper {
namespace {

constexpr int64_t most_nodes = 5'000'000;

Checked check(const TrainingDag& dag, const Split& split, DirectiveId by) {
  PIPER_CHECK(check_new_tag(dag, split.as, by));
  const int64_t slices = int64_t{dag.slices()} * split.parts;
  if (dag.model->step.batch % slices != 0)
    return error(ErrorCode::E213, dag.where(by, {"parts"}),
                 fmt::format("a batch of {} samples does not divide into {} parts", dag.model->step.batch, slices))
        .help("use other parts, or another batch");
  if (slices * static_cast<int64_t>(dag.nodes.size()) > most_nodes)
    return error(ErrorCode::E113, dag.where(by, {"parts"}),
                 fmt::format("{} parts make more than {} nodes", slices, most_nodes))
        .help("use fewer parts");
  return Ok{};
}

}  // namespace

Result<TrainingDag> apply(TrainingDag dag, const Split& split, DirectiveId by) {
  PIPER_CHECK(check(dag, split, by));
  // nodes stand slice by slice; the parts of one slice stay together, so that the first split is the coarse one
  const auto parts = static_cast<size_t>(split.parts);
  const size_t slices = static_cast<size_t>(dag.slices()), per_slice = dag.nodes.size() / slices;
  std::vector<Node> all_nodes;
  std::vector<Edge> all_edges;
  all_nodes.reserve(dag.nodes.size() * parts);
  all_edges.reserve(dag.edges.size() * parts);
  const auto moved = [&](NodeId id, size_t part) {
    return NodeId((id.index() / per_slice * parts + part) * per_slice + id.index() % per_slice);
  };
  for (size_t block = 0; block < slices * parts; ++block) {
    for (size_t n = 0; n < per_slice; ++n) {
      Node node = dag.nodes[block / parts * per_slice + n];
      node.tags.slice = static_cast<int>(block);
      if (parts > 1) node.made_by = by;
      all_nodes.push_back(std::move(node));
    }
  }
  for (const Edge& edge : dag.edges)
    for (size_t part = 0; part < parts; ++part)
      all_edges.push_back({moved(edge.from, part), moved(edge.to, part), edge.item, edge.made_by});
  dag.nodes = std::move(all_nodes);
  dag.edges = std::move(all_edges);
  dag.dims.push_back({split.as, split.parts, by});
  return dag;
}

}  // namespace piper
