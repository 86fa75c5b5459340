// check_acyclic: E303 with the cycle, node by node, and the orders in it.
#include <fmt/format.h>

#include <algorithm>

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

/// Walks backwards among stuck nodes until one comes twice. Edges of the cycle, in time order.
std::vector<const Edge*> find_cycle(const TrainingDag& dag, const std::vector<int>& waiting) {
  const Adjacency predecessors = adjacency(dag, Direction::Predecessors);
  NodeId at(static_cast<size_t>(std::find_if(waiting.begin(), waiting.end(), [](int w) { return w > 0; }) - waiting.begin()));
  std::vector<int> seen_at(dag.nodes.size(), -1);
  std::vector<const Edge*> path;
  while (seen_at[at.index()] < 0) {
    seen_at[at.index()] = static_cast<int>(path.size());
    const auto [first, last] = predecessors.of(at);
    const int* step = std::find_if(first, last, [&](int e) { return waiting[dag.edges[static_cast<size_t>(e)].from.index()] > 0; });
    path.push_back(&dag.edges[static_cast<size_t>(*step)]);
    at = path.back()->from;
  }
  path.erase(path.begin(), path.begin() + seen_at[at.index()]);
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace

Result<TrainingDag> check_acyclic(TrainingDag dag) {
  const std::vector<int> waiting = stuck_counts(dag);
  if (std::all_of(waiting.begin(), waiting.end(), [](int w) { return w == 0; })) return dag;
  const std::vector<const Edge*> cycle = find_cycle(dag, waiting);
  DirectiveId culprit;
  for (const Edge* edge : cycle) culprit = std::max(culprit, edge->made_by);
  Diagnostic problem = error(ErrorCode::E303, dag.where(culprit),
                             fmt::format("the order cannot be kept: {} would have to run before itself", name_of(dag, cycle[0]->from)));
  constexpr size_t most = 12;
  for (size_t i = 0; i < std::min(cycle.size(), most); ++i) {
    const Edge& edge = *cycle[i];
    const std::string why = edge.item.kind == Item::Kind::None ? "by order" : fmt::format("which needs {}", item_name(dag, edge.item));
    problem.notes.push_back({dag.where(edge.made_by), fmt::format("{} runs before {}, {}", name_of(dag, edge.from), name_of(dag, edge.to), why)});
  }
  if (cycle.size() > most) problem.notes.push_back({{}, fmt::format("… and {} more steps", cycle.size() - most)});
  problem.helps.push_back("change the order of one of the elements named above");
  return problem;
}

}  // namespace piper
