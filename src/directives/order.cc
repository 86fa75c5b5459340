// order(<element>, <element>, …): on every device, each element starts after all of the previous one has ended. An
// element is a filter, or a bracket [<filter>, <filter>] whose parts may run interleaved.
//   before:  %0 = compute embed F mb=0          %1 = compute embed F mb=1
//   after:   %0 = compute embed F mb=0          %1 = compute embed F mb=1 <- %0:after
// Illegal: nothing selected (E203); neighbours that share no device (E304); pass=B where backward is split (E307).
// Whether orders contradict data or each other is checked when all are in place (E303, E305).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "directives/directives.h"
#include "ir/select.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// The nodes of one element on one group.
struct Front {
  std::vector<NodeId> sources, sinks;
};

/// Checks orders, and collects what they add to the DAG.
class Orderer {
 public:
  Orderer(const TrainingDag& dag, const std::vector<SourcedOrder>& orders)
      : dag_(dag),
        orders_(orders),
        selector_(dag),
        successors_(adjacency(dag, Direction::Successors)),
        stamp_(dag.nodes.size(), -1) {}

  Checked add(const Order& order, DirectiveId by) {
    std::map<GroupId, std::vector<NodeId>> last;  // per group: the ends of the latest element there
    const OrderElement* previous = nullptr;
    for (const OrderElement& element : order.elements) {
      PIPER_TRY(const auto parts, select_parts(element));
      if (parts.empty()) continue;
      if (parts.size() > 1) new_brackets_.push_back({parts, by});
      std::map<GroupId, Front> fronts;
      for (const std::vector<NodeId>& part : parts) add_fronts(part, fronts);
      bool joined = last.empty();
      std::map<GroupId, std::vector<NodeId>> kept;
      for (const auto& [group, ends] : last) {
        bool covered = false;
        for (const auto& [next, front] : fronts) {
          if (!share_device(group, next)) continue;
          joined = true;
          covered = covered || contains(next, group);
          for (const NodeId from : ends)
            for (const NodeId to : front.sources) new_edges_.push_back({from, to, Item{}, by});
        }
        if (!covered) kept[group] = ends;
      }
      if (!joined) return no_common_device(*previous, element, by);
      last = std::move(kept);
      for (auto& [group, front] : fronts) last[group] = std::move(front.sinks);
      previous = &element;
    }
    return Ok{};
  }

  const std::vector<Edge>& new_edges() const { return new_edges_; }
  const std::vector<Bracket>& new_brackets() const { return new_brackets_; }

 private:
  /// Parts that turn out empty because one half of a split backward has no work are left out.
  Result<std::vector<std::vector<NodeId>>> select_parts(const OrderElement& element) {
    std::vector<std::vector<NodeId>> parts;
    for (const Filter& filter : element.parts) {
      auto nodes = selector_.nodes(filter, "order");
      if (!nodes) {
        if (half_without_work(filter)) continue;
        return std::move(nodes.error())
            .help(backward_without_work(filter) ? "nothing in what is selected is trained, so it has no backward" : "");
      }
      PIPER_CHECK(check_split(filter, *nodes));
      parts.push_back(*std::move(nodes));
    }
    return parts;
  }

  bool half_without_work(const Filter& filter) {
    Filter whole = filter;
    const auto pass = std::find_if(whole.conditions.begin(), whole.conditions.end(), [](const TagCondition& c) {
      return c.tag == "pass" &&
             (c.words == std::vector<std::string>{"BI"} || c.words == std::vector<std::string>{"BW"});
    });
    if (pass == whole.conditions.end()) return false;
    pass->words = {"BI", "BW"};
    return static_cast<bool>(selector_.nodes(whole, "order"));
  }

  bool backward_without_work(const Filter& filter) {
    Filter forward = filter;
    const auto pass = std::find_if(forward.conditions.begin(), forward.conditions.end(),
                                   [](const TagCondition& c) { return c.tag == "pass" && !c.any; });
    if (pass == forward.conditions.end()) return false;
    pass->words = {"F"};
    const auto nodes = selector_.nodes(forward, "order");
    return nodes && std::all_of(nodes->begin(), nodes->end(), [&](NodeId id) {
             const Chunk& chunk = (*dag_.model)[dag_[id].tags.chunk];
             return !chunk.find(Pass::B) && !chunk.find(Pass::BI) && !chunk.find(Pass::BW);
           });
  }

  Checked check_split(const Filter& filter, const std::vector<NodeId>& nodes) {
    const TagCondition* pass = filter.find("pass");
    if (!pass || pass->any || std::find(pass->words.begin(), pass->words.end(), "B") == pass->words.end()) return Ok{};
    for (const NodeId id : nodes)
      if (dag_[id].tags.pass == Pass::BI || dag_[id].tags.pass == Pass::BW)
        return error(ErrorCode::E307, filter.where,
                     fmt::format("order: backward of {} is split, because some order names its BI or BW",
                                 (*dag_.model)[dag_[id].tags.chunk].name))
            .note(who_splits(id), "split here")
            .help("write pass=BI and pass=BW here too");
    return Ok{};
  }

  /// The first filter that names a half of this backward.
  SourceRange who_splits(NodeId id) {
    for (const SourcedOrder& sourced : orders_)
      for (const OrderElement& element : sourced.order.elements)
        for (const Filter& filter : element.parts) {
          const TagCondition* pass = filter.find("pass");
          const auto is_half = [](const std::string& word) { return word == "BI" || word == "BW"; };
          if (!pass || std::none_of(pass->words.begin(), pass->words.end(), is_half)) continue;
          auto nodes = selector_.nodes(filter, "order");
          if (!nodes || std::find(nodes->begin(), nodes->end(), id) == nodes->end()) continue;
          return filter.where ? filter.where : dag_.where(sourced.by);
        }
    return {};
  }

  /// Splits the nodes by group and finds the first and the last among them.
  void add_fronts(const std::vector<NodeId>& nodes, std::map<GroupId, Front>& fronts) {
    ++mark_;
    for (const NodeId id : nodes) stamp_[id.index()] = mark_;
    has_predecessor_.clear();
    std::vector<NodeId> sinks;
    for (const NodeId id : nodes)
      if (!reaches_marked(id)) sinks.push_back(id);
    for (const NodeId id : nodes)
      if (!has_predecessor_.contains(id)) fronts[dag_[id].group].sources.push_back(id);
    for (const NodeId id : sinks) fronts[dag_[id].group].sinks.push_back(id);
  }

  /// Follows values through communication to other nodes of the element on the same group.
  bool reaches_marked(NodeId from) {
    bool found = false;
    std::vector<NodeId> open = {from};
    for (size_t i = 0; i < open.size() && i < 64; ++i) {
      const auto [first, last] = successors_.of(open[i]);
      for (const int* e = first; e != last; ++e) {
        const Edge& edge = dag_.edges[static_cast<size_t>(*e)];
        if (stamp_[edge.to.index()] == mark_ && dag_[edge.to].group == dag_[from].group) {
          has_predecessor_.insert(edge.to);
          found = true;
        } else if (!is_compute(dag_[edge.to]) && edge.item.is_value()) {
          open.push_back(edge.to);
        }
      }
    }
    return found;
  }

  bool share_device(GroupId a, GroupId b) { return a == b || relation(a, b).share; }
  bool contains(GroupId outer, GroupId inner) { return outer == inner || relation(outer, inner).contains; }

  struct Relation {
    bool share = false;
    bool contains = false;
  };
  Relation relation(GroupId a, GroupId b) {
    const auto key = std::pair(a, b);
    if (const auto found = relations_.find(key); found != relations_.end()) return found->second;
    DeviceList one = dag_.groups[a].devices, two = dag_.groups[b].devices, common;
    std::sort(one.begin(), one.end());
    std::sort(two.begin(), two.end());
    std::set_intersection(one.begin(), one.end(), two.begin(), two.end(), std::back_inserter(common));
    return relations_[key] = {!common.empty(), common.size() == two.size()};
  }

  Diagnostic no_common_device(const OrderElement& previous, const OrderElement& element, DirectiveId by) const {
    return error(ErrorCode::E304, element.where ? element.where : dag_.where(by),
                 fmt::format("order: {} runs on no device of the element before it", print(element.parts[0])))
        .note(previous.where ? previous.where : dag_.where(by), "the element before")
        .help("order acts per device; what runs on different devices is ordered by the data between them");
  }

  const TrainingDag& dag_;                   // the caller's, as it was
  const std::vector<SourcedOrder>& orders_;  // the caller's
  Selector selector_;
  Adjacency successors_;
  std::vector<int> stamp_;
  int mark_ = -1;
  std::unordered_set<NodeId> has_predecessor_;
  std::map<std::pair<GroupId, GroupId>, Relation> relations_;
  std::vector<Edge> new_edges_;
  std::vector<Bracket> new_brackets_;
};

}  // namespace

Result<TrainingDag> apply(TrainingDag dag, const std::vector<SourcedOrder>& orders) {
  Orderer orderer(dag, orders);
  for (const SourcedOrder& sourced : orders) PIPER_CHECK(orderer.add(sourced.order, sourced.by));
  dag.edges.insert(dag.edges.end(), orderer.new_edges().begin(), orderer.new_edges().end());
  dag.brackets.insert(dag.brackets.end(), orderer.new_brackets().begin(), orderer.new_brackets().end());
  return dag;
}

}  // namespace piper
