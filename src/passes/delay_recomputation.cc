// delay_recomputation: what is computed again for backward starts when the gradient has arrived, not right after forward.
//   before:  %r = compute layer.0 R mb=0 <- %x:x0         %b = compute layer.0 B mb=0 <- %r:saved %g:d.x1
//   after:   %r = compute layer.0 R mb=0 <- %x:x0 %g:after
#include <algorithm>
#include <map>

#include "passes/passes.h"

namespace piper {
namespace {

class Segments {
 public:
  explicit Segments(const TrainingDag& dag)
      : dag_(dag), index_(dag), predecessors_(adjacency(dag, Direction::Predecessors)) {}

  NodeId recomputation_of(const Node& node) const {
    return node.tags.chunk.valid() && node.tags.slice >= 0 ? index_.find(node.tags.chunk, Pass::R, node.tags.slice) : NodeId{};
  }

  /// The recomputations that `from` waits for and that wait for no other: where its segment begins.
  std::vector<NodeId> beginnings(NodeId from) const {
    std::vector<NodeId> open = {from}, found;
    for (size_t i = 0; i < open.size(); ++i) {
      bool first = dag_[open[i]].tags.pass == Pass::R && is_compute(dag_[open[i]]);
      each_before(open[i], [&](NodeId before) {
        if (dag_[before].tags.pass != Pass::R) return;
        first = false;
        if (std::find(open.begin(), open.end(), before) == open.end()) open.push_back(before);
      });
      if (first) found.push_back(open[i]);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  template <class Visit>
  void each_before(NodeId id, Visit visit) const {
    const auto [first, last] = predecessors_.of(id);
    for (const int* e = first; e != last; ++e)
      if (const Edge& edge = dag_.edges[static_cast<size_t>(*e)]; edge.item.is_value()) visit(edge.from);
  }

  /// The computation that a value came from, through transfers and exchanges.
  NodeId computed_by(NodeId id) const {
    while (!is_compute(dag_[id])) id = dag_[id].made_from;
    return id;
  }

 private:
  const TrainingDag& dag_;
  ComputeIndex index_;
  Adjacency predecessors_;
};

bool is_backward(Pass pass) { return pass == Pass::B || pass == Pass::BI || pass == Pass::BW; }

}  // namespace

Result<TrainingDag> delay_recomputation(TrainingDag dag) {
  const bool any = std::any_of(dag.nodes.begin(), dag.nodes.end(), [](const Node& n) { return n.tags.pass == Pass::R; });
  if (!any) return dag;
  const Segments segments(dag);
  std::map<std::vector<NodeId>, ChunkId> last_chunk;  // of a segment, by its beginnings
  std::vector<const std::pair<const std::vector<NodeId>, ChunkId>*> segment_of(dag.nodes.size(), nullptr);
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    const Node& node = dag.nodes[n];
    if (!is_compute(node) || node.tags.pass != Pass::R) continue;
    auto& segment = *last_chunk.try_emplace(segments.beginnings(NodeId(n))).first;
    segment.second = std::max(segment.second, node.tags.chunk);
    segment_of[n] = &segment;
  }
  std::vector<Edge> added;
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    const Node& node = dag.nodes[n];
    if (!is_compute(node) || !is_backward(*node.tags.pass)) continue;
    const NodeId again = segments.recomputation_of(node);
    if (!again.valid()) continue;
    const auto& [beginnings, last] = *segment_of[again.index()];
    segments.each_before(NodeId(n), [&](NodeId arrival) {
      const NodeId producer = segments.computed_by(arrival);
      // a gradient from inside the segment, or from between its chunks, needs the recomputation itself
      if (!is_backward(*dag[producer].tags.pass) || dag[producer].tags.chunk <= last) return;
      for (const NodeId beginning : beginnings) added.push_back({arrival, beginning, Item{}, dag[again].made_by});
    });
  }
  dag.edges.insert(dag.edges.end(), added.begin(), added.end());
  return dag;
}

}  // namespace piper
