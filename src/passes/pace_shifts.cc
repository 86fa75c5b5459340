// pace_shifts: what goes round a ring is at most one step ahead of the computations, so that a device holds what it
// works on and what comes next, besides its own.
//   before:  %s2 = shift k core.2 F <- %s1:k    %s3 = shift k core.3 F <- %s2:k    %c = compute core.1 F <- %s1:k
//   after:   %s3 = shift k core.3 F <- %s2:k, %c
#include "passes/passes.h"

namespace piper {
namespace {

bool is_shift(const Node& node) {
  const auto* collective = std::get_if<Collective>(&node.op);
  return collective && collective->kind == CollectiveKind::Shift;
}

}  // namespace

Result<TrainingDag> pace_shifts(TrainingDag dag) {
  std::vector<std::vector<NodeId>> readers(dag.nodes.size());
  for (const Edge& edge : dag.edges)
    if (edge.item.is_value() && is_shift(dag[edge.from]) && is_compute(dag[edge.to]))
      readers[edge.from.index()].push_back(edge.to);
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    const NodeId before = dag.nodes[n].made_from;
    if (!is_shift(dag.nodes[n]) || !is_shift(dag[before])) continue;
    if (const NodeId two_before = dag[before].made_from; is_shift(dag[two_before]))
      for (const NodeId reader : readers[two_before.index()]) dag.edges.push_back({reader, NodeId(n), Item{}, {}});
  }
  return dag;
}

}  // namespace piper
