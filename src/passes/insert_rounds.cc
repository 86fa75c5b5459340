// insert_rounds: behind rows that come back from their experts, further rounds for those that did not fit into the
// buffers. They go there and back as those of the first round did; in backward they go through forward once more, so
// that nobody keeps them.
//   before:  %y = all_to_all y <- %e:y, %t:ends     %c = compute combine F <- %y:y
//   after:   %y = all_to_all y <- %e:y, %t:ends     %r = rounds y <- %y:y, %t:ends, %d:x     %c = compute combine F <-
//   %r:y
// Illegal: rows that go from chunk to chunk, several values that leave, backward without a gradient of rows (E308).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "passes/passes.h"

namespace piper {
namespace {

class RoundsInserter {
 public:
  explicit RoundsInserter(TrainingDag& dag)
      : dag_(dag), computations_(dag), before_(adjacency(dag, Direction::Predecessors)) {}

  Checked run() {
    const size_t nodes = dag_.nodes.size();
    for (size_t n = 0; n < nodes; ++n)
      if (is_way_back(NodeId(n))) PIPER_CHECK(insert(NodeId(n)));
    for (Edge& edge : dag_.edges)  // whoever reads what came back reads what all rounds brought
      if (const auto found = behind_.find(edge.from); found != behind_.end() && edge.to != found->second)
        edge.from = found->second;
    dag_.edges.insert(dag_.edges.end(), added_.begin(), added_.end());
    return check_backward(nodes);
  }

 private:
  /// A value that came over an edge, and the node it came from.
  using Arrival = std::pair<ValueId, NodeId>;

  const Chunk& chunk_of(NodeId id) const { return (*dag_.model)[dag_[id].tags.chunk]; }
  bool is_routed(ValueId value) const { return labelled((*dag_.model)[value].shape, routed_label) != nullptr; }
  bool is_divided(NodeId computation) const {
    const Node& node = dag_[computation];
    return is_compute(node) && chunk_of(computation).routed_by &&
           dag_.residence(node.tags.chunk, node.group).expert_group().has_value();
  }
  std::vector<Arrival> arrivals(NodeId id) const {
    std::vector<Arrival> out;
    const auto [first, last] = before_.of(id);
    for (const int* e = first; e != last; ++e)
      if (const Edge& edge = dag_.edges[static_cast<size_t>(*e)]; edge.item.is_value())
        out.emplace_back(edge.item.value_id(), edge.from);
    return out;
  }
  NodeId arrived(NodeId id, ValueId value) const {
    for (const auto& [item, from] : arrivals(id))
      if (item == value) return from;
    return {};
  }
  /// Rows that were exchanged.
  const Collective* exchange_of_rows(NodeId id) const {
    const auto* collective = std::get_if<Collective>(&dag_[id].op);
    const bool exchanges = collective && collective->kind == CollectiveKind::AllToAll && collective->item.is_value();
    return exchanges && is_routed(collective->item.value_id()) ? collective : nullptr;
  }
  bool is_way_back(NodeId id) const { return exchange_of_rows(id) && is_divided(dag_[id].made_from); }

  Diagnostic refuse(NodeId computation, const std::string& what, std::string help) const {
    const Node& node = dag_[computation];
    const Sharding& experts = *dag_.residence(node.tags.chunk, node.group).find(ShardKind::Expert);
    return error(ErrorCode::E308, dag_.where_filter(experts.by),
                 fmt::format("shard: chunk {}: {}", chunk_of(computation).name, what))
        .help(std::move(help));
  }

  /// What the computation got from elsewhere, as it was before it was exchanged.
  Checked add_sources(NodeId computation, std::map<ValueId, NodeId>& sources) const {
    for (const auto& [value, from] : arrivals(computation)) {
      if (!is_routed(value)) continue;
      if (exchange_of_rows(from))
        sources[value] = arrived(from, value);
      else if (dag_[from].tags.chunk != dag_[computation].tags.chunk)
        return refuse(
            computation,
            fmt::format("the sorted rows {} come from another chunk of the region", (*dag_.model)[value].name),
            "only regions of one chunk can be divided whose rows are sorted: leave out biases of experts, "
            "or give them slots, capacity_factor = 1.25");
    }
    return Ok{};
  }

  /// The forward pass behind a backward: again, if it is computed again.
  NodeId forward_of(const NodeTags& tags) const {
    const NodeId again = computations_.find(tags.chunk, Pass::R, tags.slice);
    return again.valid() ? again : computations_.find(tags.chunk, Pass::F, tags.slice);
  }

  Checked insert(NodeId back) {
    const NodeId computation = dag_[back].made_from;
    const NodeTags tags = dag_[computation].tags;
    const Collective& exchange = std::get<Collective>(dag_[back].op);
    if (!done_.insert(computation).second)
      return refuse(computation, "several values on sorted rows leave the region in one pass",
                    "only regions with one result can be divided whose rows are sorted");
    std::map<ValueId, NodeId> sources;
    PIPER_CHECK(add_sources(computation, sources));
    const bool backward = tags.pass != Pass::F && tags.pass != Pass::R;
    if (backward) {
      backwards_.insert({tags.chunk, tags.slice});
      PIPER_CHECK(add_sources(forward_of(tags), sources));
    }
    Node node = dag_[back];
    node.op = Collective{CollectiveKind::Rounds, exchange.item, exchange.over};
    node.tags = tags;
    node.made_from = back;
    const NodeId rounds = dag_.add(node);
    const ValueId ends = *chunk_of(computation).routed_by;
    added_.push_back({back, rounds, Item::value(std::get<Collective>(node.op).item.value_id()), {}});
    added_.push_back({arrived(back, ends), rounds, Item::value(ends), {}});
    for (const auto& [value, source] : sources) added_.push_back({source, rounds, Item::value(value), {}});
    behind_[back] = rounds;
    return check_complete(rounds, computation, sources);
  }

  /// Every pass that further rounds run finds what it reads.
  Checked check_complete(NodeId rounds, NodeId computation, const std::map<ValueId, NodeId>& sources) const {
    const Chunk& chunk = chunk_of(computation);
    const std::vector<ValueId>& made = chunk.find(Pass::F)->writes;
    for (const PassWork* work : works_of(dag_, dag_[rounds]))
      for (const ValueId value : work->reads)
        if (value != chunk.routed_by && !sources.contains(value) &&
            (std::ranges::find(made, value) == made.end() || work == chunk.find(Pass::F)))
          return refuse(computation, fmt::format("{} does not come with the sorted rows", (*dag_.model)[value].name),
                        "what the region reads has a row for each choice of a token");
    return Ok{};
  }

  /// Gradients of weights are complete only with those of further rounds.
  Checked check_backward(size_t nodes) const {
    for (size_t n = 0; n < nodes; ++n) {
      const NodeId id(n);
      if (!is_divided(id)) continue;
      const NodeTags& tags = dag_[id].tags;
      if (!work_of(dag_, dag_[id]).gradients.empty() && !backwards_.contains({tags.chunk, tags.slice}))
        return refuse(id, "its backward pass gives no gradient of the rows, so that further rounds have no place",
                      "do not freeze all that comes before the experts");
    }
    return Ok{};
  }

  TrainingDag& dag_;
  const ComputeIndex computations_;
  const Adjacency before_;
  std::map<NodeId, NodeId> behind_;  // by exchange: the further rounds
  std::set<NodeId> done_;            // computations
  std::set<std::pair<ChunkId, int>> backwards_;
  std::vector<Edge> added_;
};

}  // namespace

Result<TrainingDag> insert_rounds(TrainingDag dag) {
  PIPER_CHECK(RoundsInserter(dag).run());
  return dag;
}

}  // namespace piper
