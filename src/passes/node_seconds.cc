// node_seconds: how long every node takes alone. What groups and partitions have in common is looked up once, so that
// many devices cost little.
#include <algorithm>
#include <map>

#include "base/overloaded.h"
#include "ir/compute_costs.h"
#include "ir/local_size.h"
#include "passes/passes.h"

namespace piper {
namespace {

class NodeCosts {
 public:
  NodeCosts(const TrainingDag& dag, const Costs& costs)
      : dag_(dag), cluster_(costs.cluster), computations_(dag, costs), spreads_(dag.groups.partition_count()) {}

  Result<double> of(const Node& node) {
    return std::visit(overloaded{
                          [&](const Compute&) {
                            return computations_.pass(node.tags.chunk, *node.tags.pass, work_of(dag_, node),
                                                      node.group);
                          },
                          [&](const Update&) { return computations_.update(node); },
                          [&](const Transfer& t) {
                            return Result<double>(computations_.transfer(t.from, node.group, moved_bytes(dag_, node)));
                          },
                          [&](const Collective& c) { return Result<double>(collective(node, c)); },
                      },
                      node.op);
  }

 private:
  double collective(const Node& node, const Collective& collective) {
    const int64_t bytes = moved_bytes(dag_, node);
    const auto [found, fresh] = collectives_.emplace(std::tuple(collective.over, collective.kind, bytes), 0.0);
    if (fresh)
      for (const Spread& spread : spreads(collective.over))
        found->second =
            std::max(found->second, alone_seconds(collective_traffic(cluster_, collective.kind, spread, bytes)));
    return found->second;
  }

  /// The different ways in which the parts of a partition lie over the cluster: few.
  const std::vector<Spread>& spreads(PartitionId over) {
    std::vector<Spread>& found = spreads_[over.index()];
    if (!found.empty()) return found;
    const Partition& partition = dag_.groups[over];
    const auto size = static_cast<size_t>(partition.part_size);
    for (size_t first = 0; first < partition.members.size(); first += size) {
      const Spread spread = spread_of(cluster_, std::span(partition.members).subspan(first, size));
      if (std::find(found.begin(), found.end(), spread) == found.end()) found.push_back(spread);
    }
    return found;
  }

  const TrainingDag& dag_;
  const Cluster& cluster_;
  ComputeCosts computations_;
  std::vector<std::vector<Spread>> spreads_;  // by PartitionId
  std::map<std::tuple<PartitionId, CollectiveKind, int64_t>, double> collectives_;
};

}  // namespace

Result<std::vector<double>> node_seconds(const TrainingDag& dag, const Costs& costs) {
  NodeCosts of(dag, costs);
  std::vector<double> out;
  out.reserve(dag.nodes.size());
  for (const Node& node : dag.nodes) {
    auto seconds = of.of(node);
    if (!seconds) return Diagnostic(std::move(seconds.error())).note(dag.where(node.placed_by), "placed here");
    out.push_back(*seconds);
  }
  return out;
}

}  // namespace piper
