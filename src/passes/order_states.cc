// order_states: passes that change state of their chunk (running statistics, counters) do so slice after slice, in the
// order of the batch, on every device.
//   before:  %a = compute norm F mb=0    %b = compute norm F mb=1
//   after:   %a = compute norm F mb=0    %b = compute norm F mb=1 <- %a:after
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "passes/passes.h"

namespace piper {
namespace {

bool changes_state(const TrainingDag& dag, const Node& node) {
  return is_compute(node) && node.tags.pass != Pass::R && work_of(dag, node).state;
}

}  // namespace

Result<TrainingDag> order_states(TrainingDag dag) {
  using Keeper = std::pair<ChunkId, Pass>;
  std::map<Keeper, std::vector<NodeId>> changes;
  for (size_t n = 0; n < dag.nodes.size(); ++n)
    if (const Node& node = dag.nodes[n]; changes_state(dag, node))
      changes[{node.tags.chunk, *node.tags.pass}].push_back(NodeId(n));
  for (auto& [keeper, nodes] : changes) {
    std::sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) { return dag[a].tags.slice < dag[b].tags.slice; });
    std::map<int, NodeId> last;  // by device, which has a copy of the state
    for (const NodeId id : nodes) {
      std::set<NodeId> before;
      for (const int device : dag.groups[dag[id].group].devices) {
        const auto [found, first] = last.try_emplace(device, id);
        if (!first) before.insert(std::exchange(found->second, id));
      }
      for (const NodeId earlier : before) dag.edges.push_back({earlier, id, Item{}, {}});
    }
  }
  return dag;
}

}  // namespace piper
