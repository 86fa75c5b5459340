// delay_recomputation: what is computed again for backward starts when the gradient has arrived, not right after
// forward.
//   before:  %r = compute layer.0 R mb=0 <- %x:x0         %b = compute layer.0 B mb=0 <- %r:saved %g:d.x1
//   after:   %r = compute layer.0 R mb=0 <- %x:x0 %g:after
#include <algorithm>
#include <map>

#include "passes/passes.h"

namespace piper {
namespace {

class Segments {
 public:
  explicit Segments(const TrainingDag& dag) : dag_(dag), predecessors_(adjacency(dag, Direction::Predecessors)) {}

  /// The recomputations that `from` waits for and that wait for no other: where its segment begins.
  std::vector<NodeId> beginnings(NodeId from) const {
    std::vector<NodeId> open = {from}, found;
    for (size_t i = 0; i < open.size(); ++i) {
      bool first = true;
      each_before(open[i], [&](NodeId arrival) {
        const NodeId before = computed_by(arrival);
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
  Adjacency predecessors_;
};

bool is_backward(Pass pass) {
  return pass == Pass::B || pass == Pass::BI || pass == Pass::BW;
}

}  // namespace

Result<TrainingDag> delay_recomputation(TrainingDag dag) {
  const bool any =
      std::any_of(dag.nodes.begin(), dag.nodes.end(), [](const Node& n) { return n.tags.pass == Pass::R; });
  if (!any) return dag;
  const Segments segments(dag);
  // a segment, by its beginnings: the last chunk whose backward reads from it
  std::map<std::vector<NodeId>, ChunkId> last_chunk;
  using Segment = decltype(last_chunk)::value_type;
  std::vector<std::pair<NodeId, const Segment*>> readers;
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    const Node& node = dag.nodes[n];
    if (!is_compute(node) || !is_backward(*node.tags.pass)) continue;
    segments.each_before(NodeId(n), [&](NodeId arrival) {
      const NodeId producer = segments.computed_by(arrival);
      if (dag[producer].tags.pass != Pass::R) return;
      Segment& segment = *last_chunk.try_emplace(segments.beginnings(producer)).first;
      segment.second = std::max(segment.second, node.tags.chunk);
      readers.emplace_back(NodeId(n), &segment);
    });
  }
  std::sort(readers.begin(), readers.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->first) < std::pair(b.first, b.second->first);
  });
  readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
  std::vector<Edge> added;
  for (const auto& [reader, segment] : readers) {
    segments.each_before(reader, [&](NodeId arrival) {
      const NodeId producer = segments.computed_by(arrival);
      // a gradient from inside the segment, or from between its chunks, needs the recomputation itself
      if (!is_backward(*dag[producer].tags.pass) || dag[producer].tags.chunk <= segment->second) return;
      for (const NodeId beginning : segment->first)
        if (dag[beginning].group == dag[arrival].group)
          added.push_back({arrival, beginning, Item{}, dag[beginning].made_by});
    });
  }
  dag.edges.insert(dag.edges.end(), added.begin(), added.end());
  return dag;
}

}  // namespace piper
