// keep_forward: of an ordered step what evaluation needs: the forward passes behind the losses, the communication that
// they need, and the sum of the losses. On every stream of computations they keep the order that the step gives them.
//   before:  %f = compute layer.0 F mb=0        %b = compute layer.0 B mb=0 <- %f:saved        %u = update weights0
//   after:   %f = compute layer.0 F mb=0        %s = all_reduce scalars <- %f:loss
#include <algorithm>
#include <map>

#include "ir/device_classes.h"
#include "passes/passes.h"
#include "passes/step_scalars.h"

namespace piper {
namespace {

/// Losses that the node computes.
std::vector<ValueId> losses_of(const TrainingDag& dag, const Node& node) {
  std::vector<ValueId> out;
  if (!is_compute(node) || node.tags.pass != Pass::F) return out;
  for (const ValueId value : work_of(dag, node).writes)
    if ((*dag.model)[value].kind == ValueKind::Loss) out.push_back(value);
  return out;
}

/// Everything that flows into a loss.
std::vector<char> behind_losses(const TrainingDag& dag) {
  const Adjacency predecessors = adjacency(dag, Direction::Predecessors);
  std::vector<char> kept(dag.nodes.size(), 0);
  std::vector<NodeId> open;
  const auto keep = [&](NodeId id) {
    if (kept[id.index()]) return;
    kept[id.index()] = 1;
    open.push_back(id);
  };
  for (size_t n = 0; n < dag.nodes.size(); ++n)
    if (!losses_of(dag, dag.nodes[n]).empty()) keep(NodeId(n));
  while (!open.empty()) {
    const auto [first, last] = predecessors.of(open.back());
    open.pop_back();
    for (const int* e = first; e != last; ++e)
      if (const Edge& edge = dag.edges[static_cast<size_t>(*e)]; edge.item.kind != Item::Kind::None) keep(edge.from);
  }
  return kept;
}

/// Computations that follow each other on a stream of a device.
std::vector<Edge> order_of_computations(const LinearDag& trained, const std::vector<char>& kept) {
  const DeviceClasses classes = device_classes(trained.dag);
  std::map<std::pair<int, StreamId>, NodeId> last;  // by class of devices and stream
  std::vector<Edge> out;
  for (const NodeId id : trained.order) {
    const Node& node = trained.dag[id];
    if (!kept[id.index()] || !is_compute(node)) continue;
    std::vector<NodeId> before;
    for (const int c : classes.of_group(node.group)) {
      NodeId& previous = last[{c, node.stream}];
      if (previous.valid() && std::find(before.begin(), before.end(), previous) == before.end())
        before.push_back(previous);
      previous = id;
    }
    for (const NodeId previous : before) out.push_back({previous, id, Item{}, {}});
  }
  return out;
}

}  // namespace

Result<TrainingDag> keep_forward(LinearDag trained) {
  TrainingDag& dag = trained.dag;
  const std::vector<char> kept = behind_losses(dag);
  std::vector<Edge> edges = order_of_computations(trained, kept);
  edges.insert(edges.begin(), dag.edges.begin(), dag.edges.end());
  std::vector<NodeId> renamed(dag.nodes.size());
  std::vector<Node> nodes;
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    if (!kept[n]) continue;
    renamed[n] = NodeId(nodes.size());
    nodes.push_back(dag.nodes[n]);
  }
  for (Node& node : nodes)
    if (node.made_from.valid()) node.made_from = renamed[node.made_from.index()];
  std::erase_if(edges, [&](const Edge& edge) { return !kept[edge.from.index()] || !kept[edge.to.index()]; });
  for (Edge& edge : edges) edge = {renamed[edge.from.index()], renamed[edge.to.index()], edge.item, edge.made_by};
  std::erase_if(dag.prefetches, [&](const Prefetched& prefetched) { return !kept[prefetched.gather.index()]; });
  for (Prefetched& prefetched : dag.prefetches) prefetched.gather = renamed[prefetched.gather.index()];
  dag.brackets.clear();  // nothing is left to overlap with
  dag.nodes = std::move(nodes);
  dag.edges = std::move(edges);
  const size_t forwards = dag.nodes.size();
  const NodeId scalars = add_scalars(dag);
  for (size_t n = 0; n < forwards; ++n)
    for (const ValueId loss : losses_of(dag, dag.nodes[n]))
      dag.edges.push_back({NodeId(n), scalars, Item::value(loss), {}});
  return std::move(dag);
}

}  // namespace piper
