// delay_recomputation: what is computed or gathered again for backward starts when the gradient has arrived, not right
// after forward.
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

/// Tokens of a value of forward, joined once more for a later pass, or on their way round a ring once more.
bool is_gathered_again(const TrainingDag& dag, const Segments& segments, NodeId id) {
  const auto* collective = std::get_if<Collective>(&dag[id].op);
  if (!collective || !collective->item.is_value() || dag[id].tags.pass == Pass::F) return false;
  const bool sets_out = collective->kind == CollectiveKind::Shift && is_compute(dag[dag[id].made_from]);
  return (collective->kind == CollectiveKind::AllGather || sets_out) &&
         dag[segments.computed_by(id)].tags.pass == Pass::F;
}

/// Gathers wait for what their readers wait for; `added`: edges to recomputations.
std::vector<Edge> gathers_later(const TrainingDag& dag, const Segments& segments, const std::vector<Edge>& added) {
  std::vector<Edge> out;
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    const NodeId reader(n);
    if (!is_compute(dag[reader])) continue;
    segments.each_before(reader, [&](NodeId gather) {
      if (is_compute(dag[gather]) || !is_gathered_again(dag, segments, gather)) return;
      segments.each_before(reader, [&](NodeId arrival) {
        const NodeId producer = segments.computed_by(arrival);
        if (dag[producer].tags.pass == Pass::F || arrival == gather) return;
        const bool local = dag[producer].group == dag[gather].group;  // it may start beside the arrival itself
        out.push_back({local ? producer : arrival, gather, Item{}, dag[gather].made_by});
      });
      for (const Edge& edge : added)
        if (edge.to == reader) out.push_back({edge.from, gather, Item{}, dag[gather].made_by});
    });
  }
  return out;
}

/// From the arrival of a gradient to the recomputations for which it gives the sign.
std::vector<Edge> recomputes_later(const TrainingDag& dag, const Segments& segments) {
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
  return added;
}

}  // namespace

Result<TrainingDag> delay_recomputation(TrainingDag dag) {
  const Segments segments(dag);
  std::vector<Edge> added = recomputes_later(dag, segments);
  const std::vector<Edge> gathers = gathers_later(dag, segments, added);
  added.insert(added.end(), gathers.begin(), gathers.end());
  dag.edges.insert(dag.edges.end(), added.begin(), added.end());
  return dag;
}

}  // namespace piper
