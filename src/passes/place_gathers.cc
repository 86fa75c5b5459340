// place_gathers: of the gathers before every use, those stay whose copy is not alive any more (release), each as far
// before its first user as prefetch says; the rest of the users share the copy.
//   before:  %g1 = gather weights3        %a = compute layer.0 F <- %g1     %g2 = gather weights3     %b = compute
//   layer.1 F <- %g2 after:   %g1 = gather weights3        %a = compute layer.0 F <- %g1     %b = compute layer.1 F <-
//   %g1
#include <algorithm>
#include <map>
#include <unordered_map>

#include "ir/device_classes.h"
#include "ir/local_size.h"
#include "passes/passes.h"

namespace piper {
namespace {

constexpr int default_distance = 1;

struct GatherUse {
  NodeId gather;
  NodeId user;
  int position = 0;  // of the user among the computations of the device
};

class Placer {
 public:
  explicit Placer(LinearDag& linear) : linear_(linear), dag_(linear.dag), removed_(dag_.nodes.size(), 0) {}

  bool run() {
    std::vector<int> rank(dag_.nodes.size(), -1);
    for (size_t i = 0; i < linear_.order.size(); ++i) rank[linear_.order[i].index()] = static_cast<int>(i);
    const DeviceClasses classes = device_classes(dag_);
    std::map<std::pair<GroupId, int>, std::vector<GatherUse>> uses;  // by group and bucket
    for (const Edge& edge : dag_.edges)
      if (edge.item.kind == Item::Kind::Weights && rank[edge.from.index()] < 0)
        uses[{dag_[edge.from].group, edge.item.index}].push_back({edge.from, edge.to, 0});
    if (uses.empty()) return false;
    for (const Prefetched& prefetched : dag_.prefetches) distance_[prefetched.gather] = prefetched.distance;
    for (auto& [key, list] : uses) place(key.first, BucketId(key.second), list, computations(classes, key.first), rank);
    rebuild();
    return true;
  }

 private:
  /// Computations of the first device of a group, in order.
  const std::vector<NodeId>& computations(const DeviceClasses& classes, GroupId group) {
    std::vector<NodeId>& out = computations_[group];
    if (!out.empty()) return out;
    const int device_class = classes.of_group(group)[0];
    for (const NodeId id : linear_.order) {
      if (!is_compute(dag_[id]) && !is_rounds(dag_[id])) continue;
      const auto& on = classes.of_group(dag_[id].group);
      if (std::find(on.begin(), on.end(), device_class) != on.end()) out.push_back(id);
    }
    return out;
  }

  /// Position after which a copy used at `position` goes.
  int released_after(Release release, const std::vector<NodeId>& computations, int position) const {
    const int last = static_cast<int>(computations.size()) - 1;
    if (release == Release::Step) return last;
    if (release == Release::Use) return position;
    const NodeTags& tags = dag_[computations[static_cast<size_t>(position)]].tags;
    while (position < last) {
      const NodeTags& next = dag_[computations[static_cast<size_t>(position + 1)]].tags;
      if (next.pass != tags.pass || next.slice != tags.slice) break;
      ++position;
    }
    return position;
  }

  void place(GroupId group, BucketId bucket, std::vector<GatherUse>& uses, const std::vector<NodeId>& computations,
             const std::vector<int>& rank) {
    std::sort(uses.begin(), uses.end(),
              [&](const GatherUse& a, const GatherUse& b) { return rank[a.user.index()] < rank[b.user.index()]; });
    size_t next = 0;
    for (GatherUse& use : uses) {
      while (computations[next] != use.user) ++next;
      use.position = static_cast<int>(next);
    }
    const Holder& holder = holder_on(dag_[bucket], group);
    std::map<NodeId, int> last_position;  // of the users of one gather
    for (const GatherUse& use : uses) last_position[use.gather] = use.position;
    NodeId alive;
    int last_use = -1, alive_until = -1;
    const auto release = [&] {  // the copy may stay beyond its last use
      if (alive.valid() && alive_until > last_use)
        added_.push_back({alive, computations[static_cast<size_t>(alive_until)], Item::weights(bucket), holder.by});
    };
    for (const GatherUse& use : uses) {
      const auto found = distance_.find(use.gather);
      const std::optional<int> distance = found == distance_.end() ? default_distance : found->second;
      const int from = distance ? std::max(0, use.position - *distance) : 0;
      if (alive.valid() && alive_until >= from) {
        if (use.gather != alive && shared_.try_emplace(use.gather, alive).second) removed_[use.gather.index()] = 1;
      } else {
        release();
        alive = use.gather;
        before_[computations[static_cast<size_t>(from)]].push_back({use.position, alive});
        if (from > 0) added_.push_back({computations[static_cast<size_t>(from - 1)], alive, Item{}, holder.by});
      }
      last_use = use.position;
      alive_until = std::max(
          {alive_until, last_position[use.gather], released_after(holder.release, computations, use.position)});
    }
    release();
  }

  /// Leaves out the shared gathers and writes the order anew.
  void rebuild() {
    std::vector<NodeId> renamed(dag_.nodes.size());
    std::vector<Node> nodes;
    for (size_t n = 0; n < dag_.nodes.size(); ++n) {
      if (removed_[n]) continue;
      renamed[n] = NodeId(nodes.size());
      nodes.push_back(dag_.nodes[n]);
    }
    for (Node& node : nodes)
      if (node.made_from.valid()) node.made_from = renamed[node.made_from.index()];
    const auto rename = [&](NodeId& id) { id = renamed[(removed_[id.index()] ? shared_.at(id) : id).index()]; };
    std::vector<Edge> edges = std::move(dag_.edges);
    edges.insert(edges.end(), added_.begin(), added_.end());
    for (Edge& edge : edges) {
      rename(edge.from);
      rename(edge.to);
    }
    std::vector<NodeId> order;
    std::vector<double> start(nodes.size(), 0), end(nodes.size(), 0);
    const auto put = [&](NodeId id, double from, double to) {
      const NodeId now = renamed[id.index()];
      order.push_back(now);
      start[now.index()] = from;
      end[now.index()] = to;
    };
    for (const NodeId id : linear_.order) {
      if (const auto found = before_.find(id); found != before_.end()) {
        std::sort(found->second.begin(), found->second.end());  // the one needed first goes first
        for (const auto& [position, gather] : found->second)
          put(gather, linear_.start[id.index()], linear_.start[id.index()]);
      }
      put(id, linear_.start[id.index()], linear_.end[id.index()]);
    }
    for (Bracket& bracket : dag_.brackets)
      for (auto& part : bracket.parts)
        for (NodeId& id : part) rename(id);
    std::erase_if(dag_.prefetches, [&](const Prefetched& p) { return removed_[p.gather.index()] != 0; });
    for (Prefetched& prefetched : dag_.prefetches) rename(prefetched.gather);
    dag_.nodes = std::move(nodes);
    dag_.edges = std::move(edges);
    linear_.order = std::move(order);
    linear_.start = std::move(start);
    linear_.end = std::move(end);
  }

  LinearDag& linear_;
  TrainingDag& dag_;
  std::vector<char> removed_;
  std::unordered_map<NodeId, std::optional<int>> distance_;
  std::unordered_map<NodeId, NodeId> shared_;  // removed gather -> the one whose copy is used
  /// By computation: the gathers put just before it, each with the position of its first user.
  std::unordered_map<NodeId, std::vector<std::pair<int, NodeId>>> before_;
  std::map<GroupId, std::vector<NodeId>> computations_;
  std::vector<Edge> added_;
};

}  // namespace

Result<LinearDag> place_gathers(LinearDag linear) {
  Placer(linear).run();
  return linear;
}

}  // namespace piper
