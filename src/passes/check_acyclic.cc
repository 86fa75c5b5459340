// check_acyclic: E303 with the cycle, node by node, and the orders in it.
#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "ir/order_place.h"
#include "passes/passes.h"

namespace piper {
namespace {

/// Nodes that are left when everything that can run has run; a cycle is among them.
std::vector<int> stuck_counts(const TrainingDag& dag) {
  const Adjacency successors = adjacency(dag, Direction::Successors);
  std::vector<int> waiting(dag.nodes.size(), 0);
  for (const Edge& edge : dag.edges) ++waiting[edge.to.index()];
  std::vector<NodeId> ready;
  for (size_t n = 0; n < waiting.size(); ++n)
    if (waiting[n] == 0) ready.push_back(NodeId(n));
  while (!ready.empty()) {
    const NodeId id = ready.back();
    ready.pop_back();
    const auto [first, last] = successors.of(id);
    for (const int* e = first; e != last; ++e)
      if (const NodeId to = dag.edges[static_cast<size_t>(*e)].to; --waiting[to.index()] == 0) ready.push_back(to);
  }
  return waiting;
}

/// The shortest way from one stuck node to another, as edges.
std::vector<const Edge*> shortest_path(const TrainingDag& dag, const Adjacency& successors,
                                       const std::vector<int>& waiting, NodeId from, NodeId to) {
  std::vector<const Edge*> came_by(dag.nodes.size(), nullptr);
  std::vector<NodeId> open = {from};
  for (size_t i = 0; i < open.size() && !came_by[to.index()]; ++i) {
    const auto [first, last] = successors.of(open[i]);
    for (const int* e = first; e != last; ++e) {
      const Edge& edge = dag.edges[static_cast<size_t>(*e)];
      if (waiting[edge.to.index()] == 0 || came_by[edge.to.index()]) continue;
      came_by[edge.to.index()] = &edge;
      open.push_back(edge.to);
    }
  }
  std::vector<const Edge*> path;
  for (NodeId at = to; came_by[to.index()] && (path.empty() || at != from); at = path.back()->from)
    path.push_back(came_by[at.index()]);
  std::reverse(path.begin(), path.end());
  return path;
}

/// A short cycle that begins with an order edge. Only orders can close a cycle: data alone is acyclic.
std::vector<const Edge*> find_cycle(const TrainingDag& dag, const std::vector<int>& waiting) {
  constexpr int most_tried = 32;
  const Adjacency successors = adjacency(dag, Direction::Successors);
  std::vector<const Edge*> best;
  int tried = 0;
  for (const Edge& edge : dag.edges) {
    if (edge.item.kind != Item::Kind::None || !waiting[edge.from.index()] || !waiting[edge.to.index()]) continue;
    std::vector<const Edge*> path = {&edge};
    const std::vector<const Edge*> back = shortest_path(dag, successors, waiting, edge.to, edge.from);
    if (back.empty() && edge.from != edge.to) continue;
    path.insert(path.end(), back.begin(), back.end());
    if (best.empty() || path.size() < best.size()) best = std::move(path);
    if (++tried == most_tried) break;
  }
  invariant(!best.empty(), "a cycle of the DAG has an order edge");
  return best;
}

}  // namespace

Result<TrainingDag> check_acyclic(TrainingDag dag) {
  const std::vector<int> waiting = stuck_counts(dag);
  if (std::all_of(waiting.begin(), waiting.end(), [](int w) { return w == 0; })) return dag;
  const std::vector<const Edge*> cycle = find_cycle(dag, waiting);
  const auto place = [&](const Edge& edge) { return place_in_order(dag, edge.made_by, edge.from, edge.to); };
  const Edge* culprit = cycle[0];
  for (const Edge* edge : cycle)
    if (culprit->made_by < edge->made_by) culprit = edge;
  Diagnostic problem =
      error(ErrorCode::E303, place(*culprit),
            fmt::format("the order cannot be kept: {} would have to run before itself", name_of(dag, cycle[0]->from)));
  for (size_t i = 0; i < cycle.size();) {
    const bool ordered = cycle[i]->item.kind == Item::Kind::None;
    size_t end = i + 1;  // values that flow on from node to node are one step
    while (!ordered && end < cycle.size() && cycle[end]->item.kind != Item::Kind::None) ++end;
    const std::string why =
        ordered        ? (cycle[i]->made_by.valid() ? "by order" : "because both change the state of the chunk")
        : end == i + 1 ? fmt::format("which needs {}", item_name(dag, cycle[i]->item))
                       : fmt::format("which needs what comes out of it, through {}",
                                     end == i + 2 ? name_of(dag, cycle[i]->to) : fmt::format("{} nodes", end - i - 1));
    const SourceRange where = ordered ? place(*cycle[i]) : SourceRange{};
    problem.notes.push_back({where, fmt::format("{} runs before {}, {}", name_of(dag, cycle[i]->from),
                                                name_of(dag, cycle[end - 1]->to), why)});
    i = end;
  }
  problem.helps.push_back("change the order of one of the elements named above");
  return problem;
}

}  // namespace piper
