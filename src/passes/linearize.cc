// linearize: one total order of all nodes, by running the DAG on paper: every stream of every device takes, of the
// nodes that are ready, the one that comes first in the program; inside a bracket the one with the longest path still
// to go. Gathers of sharded parameters wait for nothing and are put in their places afterwards (place_gathers). With
// ZeRO 2 and 3 a computation waits where too many gradients would wait for their reduction (Unreduced):
//   before:  %r = reduce_scatter gradients0 B mb=0 <- %a     %c = compute layer.0 B mb=2
//   after:   %r = reduce_scatter gradients0 B mb=0 <- %a     %c = compute layer.0 B mb=2 <- %r:after
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "ir/device_classes.h"
#include "ir/order_place.h"
#include "passes/passes.h"
#include "passes/unreduced.h"

namespace piper {
namespace {

/// What decides between nodes that are ready at the same time.
struct Priority {
  int anchor;        // the node, or the first node of its bracket
  double remaining;  // inside a bracket: seconds still to go
  int node;
  friend bool operator<(const Priority& a, const Priority& b) {
    if (a.anchor != b.anchor) return a.anchor < b.anchor;
    if (a.remaining != b.remaining) return a.remaining > b.remaining;
    return a.node < b.node;
  }
};

class Linearizer {
 public:
  Linearizer(const TrainingDag& dag, const std::vector<double>& seconds)
      : dag_(dag),
        classes_(device_classes(dag)),
        successors_(adjacency(dag, Direction::Successors)),
        seconds_(seconds),
        unreduced_(dag, classes_),
        blocked_(classes_.count()) {
    const size_t nodes = dag.nodes.size();
    start.assign(nodes, 0);
    end.assign(nodes, 0);
    ready_at_.assign(nodes, 0);
    for (size_t n = 0; n < nodes; ++n) priority_.push_back({static_cast<int>(n), 0, static_cast<int>(n)});
    for (const Bracket& bracket : dag.brackets) set_priorities(bracket);
    streams_.resize(classes_.count() * dag.streams.size() * 2);
    computes_.assign(dag.streams.size(), 0);
    for (const Node& node : dag.nodes)
      if (is_compute(node)) computes_[node.stream.index()] = 1;
    free_at_.assign(streams_.size(), 0);
    wake_at_.assign(streams_.size(), never);
  }

  void run(const std::vector<char>& later) {
    std::vector<int> waiting(dag_.nodes.size(), 0);
    for (const Edge& edge : dag_.edges)
      if (!later[edge.from.index()]) ++waiting[edge.to.index()];
    order.reserve(dag_.nodes.size());
    for (size_t n = 0; n < waiting.size(); ++n)
      if (waiting[n] == 0 && !later[n]) make_ready(NodeId(n));
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      const NodeId id = next_on(event);
      if (!id.valid()) continue;
      emit(id, event.time);
      const auto [first, last] = successors_.of(id);
      for (const int* e = first; e != last; ++e) {
        const NodeId to = dag_.edges[static_cast<size_t>(*e)].to;
        ready_at_[to.index()] = std::max(ready_at_[to.index()], end[id.index()]);
        if (--waiting[to.index()] == 0) make_ready(to);
      }
    }
  }

  std::vector<NodeId> order;
  std::vector<double> start, end;
  std::vector<Edge> added;  // from reductions to computations that wait for them

 private:
  struct Waiting {
    double ready;
    NodeId node;
    friend bool operator<(const Waiting& a, const Waiting& b) {
      return a.ready != b.ready ? a.ready > b.ready : a.node > b.node;  // earliest on top
    }
  };
  struct Available {
    Priority priority;
    friend bool operator<(const Available& a, const Available& b) { return b.priority < a.priority; }  // first on top
  };
  struct StreamQueue {
    std::priority_queue<Waiting> waiting;
    std::priority_queue<Available> available;
  };
  /// At the same time communication goes first: it is issued before the computation it runs beside.
  struct Event {
    double time;
    char computes;
    size_t stream;
    friend bool operator<(const Event& a, const Event& b) {
      return std::tie(a.time, a.computes, a.stream) > std::tie(b.time, b.computes, b.stream);
    }
  };
  /// Looks at a stream again at this time. One event per stream is enough: the earliest that is wanted.
  void wake(double time, size_t stream) {
    if (wake_at_[stream] <= time) return;
    wake_at_[stream] = time;
    events_.push({time, computes_[stream / 2 % dag_.streams.size()], stream});
  }
  /// When there is something to do on it next.
  void wake_for_next(size_t stream) {
    const StreamQueue& queue = streams_[stream];
    if (!queue.available.empty())
      wake(free_at_[stream], stream);
    else if (!queue.waiting.empty())
      wake(std::max(free_at_[stream], queue.waiting.top().ready), stream);
  }

  size_t stream_index(int device_class, StreamId stream, bool receiving) const {
    return (static_cast<size_t>(device_class) * dag_.streams.size() + stream.index()) * 2 + (receiving ? 1 : 0);
  }
  /// Where the node queues: the first of the streams it occupies.
  size_t home(const Node& node) const {
    const auto* transfer = std::get_if<Transfer>(&node.op);
    return stream_index(classes_.of_group(transfer ? transfer->from : node.group)[0], node.stream, false);
  }
  template <class Visit>
  void each_stream(const Node& node, Visit visit) const {
    const auto* transfer = std::get_if<Transfer>(&node.op);
    for (const int c : classes_.of_group(node.group)) visit(stream_index(c, node.stream, transfer != nullptr));
    if (transfer)
      for (const int c : classes_.of_group(transfer->from)) visit(stream_index(c, node.stream, false));
  }

  void make_ready(NodeId id) {
    if (unreduced_.is_reduction(id)) unreduced_.add(id);
    queue_up(id);
  }
  void queue_up(NodeId id) {
    const size_t stream = home(dag_[id]);
    streams_[stream].waiting.push({ready_at_[id.index()], id});
    wake(std::max(free_at_[stream], ready_at_[id.index()]), stream);
  }

  /// The node to start now, or none if the stream is still busy (another event will come).
  NodeId next_on(const Event& event) {
    if (wake_at_[event.stream] != event.time) return {};  // an earlier one was wanted and came
    wake_at_[event.stream] = never;
    StreamQueue& queue = streams_[event.stream];
    while (!queue.waiting.empty() && queue.waiting.top().ready <= event.time) {
      queue.available.push({priority_[queue.waiting.top().node.index()]});
      queue.waiting.pop();
    }
    while (!queue.available.empty() && free_at_[event.stream] <= event.time) {
      const NodeId id(queue.available.top().priority.node);
      queue.available.pop();
      if (!waits_for_reduction(id, event.time)) return id;
    }
    wake_for_next(event.stream);
    return {};
  }

  /// Then it queues up again when gradients of its devices have been reduced.
  bool waits_for_reduction(NodeId id, double now) {
    const std::optional<int> full = unreduced_.full(id, now);
    if (!full) return false;
    if (const auto next = unreduced_.next_to_end(*full))
      wait_for(next->first, id);
    else
      blocked_[static_cast<size_t>(*full)].push_back(id);
    return true;
  }
  void wait_for(NodeId reduction, NodeId id) {
    added.push_back({reduction, id, Item{}, dag_[reduction].made_by});
    ready_at_[id.index()] = std::max(ready_at_[id.index()], end[reduction.index()]);
    queue_up(id);
  }
  void time_reduction(NodeId reduction) {
    unreduced_.set_end(reduction, end[reduction.index()]);
    for (const int c : classes_.of_group(dag_[reduction].group))
      for (const NodeId id : std::exchange(blocked_[static_cast<size_t>(c)], {})) wait_for(reduction, id);
  }

  void emit(NodeId id, double now) {
    double begin = std::max(now, ready_at_[id.index()]);
    each_stream(dag_[id], [&](size_t s) { begin = std::max(begin, free_at_[s]); });
    start[id.index()] = begin;
    end[id.index()] = begin + seconds_[id.index()];
    each_stream(dag_[id], [&](size_t s) { free_at_[s] = end[id.index()]; });
    if (unreduced_.is_reduction(id)) time_reduction(id);
    wake_for_next(home(dag_[id]));
    order.push_back(id);
  }

  /// Longest path from a node to the end of its part, over the part's own nodes and the communication between them.
  void set_priorities(const Bracket& bracket) {
    int anchor = std::numeric_limits<int>::max();
    for (const auto& part : bracket.parts)
      for (const NodeId id : part) anchor = std::min(anchor, id.value);
    for (const auto& part : bracket.parts) {
      members_.clear();
      members_.insert(part.begin(), part.end());
      memo_.clear();
      for (const NodeId id : part) priority_[id.index()] = {anchor, remaining(id), id.value};
    }
  }
  double remaining(NodeId id) {
    if (const auto found = memo_.find(id); found != memo_.end()) return found->second;
    double longest = 0;
    const auto [first, last] = successors_.of(id);
    for (const int* e = first; e != last; ++e) {
      const Edge& edge = dag_.edges[static_cast<size_t>(*e)];
      const bool inside = members_.contains(edge.to);
      const bool message = !is_compute(dag_[edge.to]) && edge.item.is_value() && dag_[edge.to].group == dag_[id].group;
      if (inside || message) longest = std::max(longest, remaining(edge.to));
    }
    return memo_[id] = longest + seconds_[id.index()];
  }

  const TrainingDag& dag_;
  DeviceClasses classes_;
  Adjacency successors_;
  static constexpr double never = std::numeric_limits<double>::infinity();
  const std::vector<double>& seconds_;
  std::vector<double> ready_at_, free_at_;
  std::vector<double> wake_at_;  // by stream: the event it waits for
  std::vector<Priority> priority_;
  std::vector<StreamQueue> streams_;
  std::vector<char> computes_;  // by StreamId
  std::priority_queue<Event> events_;
  std::unordered_set<NodeId> members_;
  std::unordered_map<NodeId, double> memo_;
  Unreduced unreduced_;
  std::vector<std::vector<NodeId>> blocked_;  // by class: computations, until a reduction there has its time
};

/// A part of a bracket that waits for the end of another: then they cannot run interleaved.
Checked check_brackets(const LinearDag& linear) {
  const TrainingDag& dag = linear.dag;
  const Adjacency successors = adjacency(dag, Direction::Successors);
  std::vector<int> position(dag.nodes.size(), -1), part_of(dag.nodes.size(), -1), visited(dag.nodes.size(), -1);
  for (size_t i = 0; i < linear.order.size(); ++i) position[linear.order[i].index()] = static_cast<int>(i);
  int visit = 0;
  for (const Bracket& bracket : dag.brackets) {
    int last = 0;
    for (size_t p = 0; p < bracket.parts.size(); ++p)
      for (const NodeId id : bracket.parts[p]) {
        part_of[id.index()] = static_cast<int>(p);
        last = std::max(last, position[id.index()]);
      }
    for (size_t p = 0; p < bracket.parts.size(); ++p) {
      NodeId end = bracket.parts[p][0];
      for (const NodeId id : bracket.parts[p])
        if (position[id.index()] > position[end.index()]) end = id;
      std::vector<NodeId> open = {end};
      ++visit;
      for (size_t i = 0; i < open.size(); ++i) {
        const auto [first, stop] = successors.of(open[i]);
        for (const int* e = first; e != stop; ++e) {
          const NodeId to = dag.edges[static_cast<size_t>(*e)].to;
          if (position[to.index()] > last || position[to.index()] < 0 || visited[to.index()] == visit) continue;
          visited[to.index()] = visit;
          if (part_of[to.index()] >= 0 && part_of[to.index()] != static_cast<int>(p))
            return error(ErrorCode::E305, place_in_order(dag, bracket.made_by, end, to),
                         fmt::format("{} and {} cannot overlap: the second waits for the end of the first",
                                     name_of(dag, end), name_of(dag, to)))
                .help("put them into the order one after the other, or overlap other microbatches");
          open.push_back(to);
        }
      }
    }
    for (const auto& part : bracket.parts)
      for (const NodeId id : part) part_of[id.index()] = -1;
  }
  return Ok{};
}

/// Gathers of sharded parameters for a computation, unless an order says when they run.
std::vector<char> placed_later(const TrainingDag& dag) {
  std::vector<char> later(dag.nodes.size(), 0);
  for (size_t n = 0; n < dag.nodes.size(); ++n) later[n] = comm_tag(dag.nodes[n]) == "gather" && dag.nodes[n].tags.pass;
  for (const Edge& edge : dag.edges) {
    if (edge.item.kind != Item::Kind::None) continue;
    later[edge.from.index()] = 0;
    later[edge.to.index()] = 0;
  }
  return later;
}

}  // namespace

Result<LinearDag> linearize(TrainingDag dag, const std::vector<double>& seconds) {
  LinearDag linear;
  std::vector<Edge> added;
  {
    Linearizer linearizer(dag, seconds);
    linearizer.run(placed_later(dag));
    linear.order = std::move(linearizer.order);
    linear.start = std::move(linearizer.start);
    linear.end = std::move(linearizer.end);
    added = std::move(linearizer.added);
  }
  linear.dag = std::move(dag);
  PIPER_CHECK(check_brackets(linear));  // of what the user wrote
  linear.dag.edges.insert(linear.dag.edges.end(), added.begin(), added.end());
  return linear;
}

}  // namespace piper
