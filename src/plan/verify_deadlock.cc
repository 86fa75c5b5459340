#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "plan/verify_plan.h"

namespace piper {
namespace {

/// The quotient of all queues: one vertex per operation of a template, one per communication for all its devices.
class QueueGraph {
 public:
  explicit QueueGraph(const Plan& plan) : plan_(plan) {
    vertices_ = plan.communications.size();
    for (const PlanTemplate& t : plan.templates) {
      first_.push_back(vertices_);
      vertices_ += t.ops.size();
    }
    for (const TemplateId t : plan.templates.ids())
      each_edge(t, [&](OpId from, OpId to) { edges_.emplace_back(vertex(t, from), vertex(t, to)); });
  }

  /// Vertices of a cycle in time order, or none.
  std::vector<size_t> find_cycle() const {
    std::vector<int> waiting(vertices_, 0);
    std::vector<size_t> offsets(vertices_ + 1, 0);
    for (const auto& [from, to] : edges_) {
      ++waiting[to];
      ++offsets[from + 1];
    }
    for (size_t v = 1; v < offsets.size(); ++v) offsets[v] += offsets[v - 1];
    std::vector<uint32_t> targets(edges_.size());
    std::vector<size_t> next(offsets.begin(), offsets.end() - 1);
    for (const auto& [from, to] : edges_) targets[next[from]++] = to;
    std::vector<size_t> ready;
    for (size_t v = 0; v < waiting.size(); ++v)
      if (waiting[v] == 0) ready.push_back(v);
    size_t done = 0;
    while (!ready.empty()) {
      const size_t v = ready.back();
      ready.pop_back();
      ++done;
      for (size_t i = offsets[v]; i < offsets[v + 1]; ++i)
        if (--waiting[targets[i]] == 0) ready.push_back(targets[i]);
    }
    return done == vertices_ ? std::vector<size_t>{} : walk_back(waiting);
  }

  /// Which device wants the first vertex before the second.
  std::string describe_step(size_t first, size_t second) const {
    for (const TemplateId t : plan_.templates.ids()) {
      std::string found;
      each_edge(t, [&](OpId from, OpId to) {
        if (!found.empty() || vertex(t, from) != first || vertex(t, to) != second) return;
        const std::string later = describe(plan_, plan_.templates[t], to);
        found = fmt::format("{} comes before {}", describe(plan_, plan_.templates[t], from),
                            later.substr(later.find(": ") + 2));  // the device is the same
      });
      if (!found.empty()) return found;
    }
    internal_error("every step of a cycle is an edge");
  }

 private:
  uint32_t vertex(TemplateId t, OpId op) const {
    const CommunicationId communication = plan_.templates[t].ops[op].communication;
    return static_cast<uint32_t>(communication.valid() ? communication.index() : first_[t] + op.index());
  }

  /// Calls visit(earlier, later) for all pairs of operations of a template that must end and start in this order.
  template <class Visit>
  void each_edge(TemplateId t, Visit visit) const {
    const auto& ops = plan_.templates[t].ops;
    Table<PlanStreamId, OpId> last_on(plan_.streams.size());
    OpId last_message;
    const auto add = [&](OpId from, OpId to) {
      // a device that sends to itself issues both halves of one transfer together
      const bool halves = vertex(t, from) == vertex(t, to) && from.value + 1 == to.value;
      if (!halves) visit(from, to);
    };
    for (const OpId i : ops.ids()) {
      OpId& last = last_on[ops[i].stream];
      if (last.valid()) add(last, i);
      last = i;
      for (const OpId wait : ops[i].waits) add(wait, i);
      if (!ops[i].communication.valid()) continue;
      if (last_message.valid()) add(last_message, i);  // for backends that serialise their streams
      last_message = i;
    }
  }

  std::vector<size_t> walk_back(const std::vector<int>& waiting) const {
    std::vector<std::vector<uint32_t>> before(vertices_);
    for (const auto& [from, to] : edges_)
      if (waiting[from] > 0 && waiting[to] > 0) before[to].push_back(from);
    size_t at = static_cast<size_t>(std::find_if(waiting.begin(), waiting.end(), [](int w) { return w > 0; }) -
                                    waiting.begin());
    std::vector<int> seen(vertices_, -1);
    std::vector<size_t> path;
    while (seen[at] < 0) {
      seen[at] = static_cast<int>(path.size());
      path.push_back(at);
      at = before[at][0];
    }
    path.erase(path.begin(), path.begin() + seen[at]);
    std::reverse(path.begin(), path.end());
    return path;
  }

  const Plan& plan_;
  Table<TemplateId, size_t> first_;
  size_t vertices_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;
};

}  // namespace

Checked verify_deadlock(const Plan& plan) {
  const QueueGraph graph(plan);
  const std::vector<size_t> cycle = graph.find_cycle();
  if (cycle.empty()) return Ok{};
  Diagnostic problem =
      error(ErrorCode::E401, {}, fmt::format("{} operations wait for each other and none can start", cycle.size()));
  constexpr size_t most = 16;
  for (size_t i = 0; i < std::min(most, cycle.size()); ++i)
    problem.notes.push_back({{}, graph.describe_step(cycle[i], cycle[(i + 1) % cycle.size()])});
  if (cycle.size() > most) problem.notes.push_back({{}, fmt::format("… and {} more", cycle.size() - most)});
  problem.helps.push_back("issue communication in the same order on all devices");
  return problem;
}

}  // namespace piper
