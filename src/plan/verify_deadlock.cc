#include <fmt/format.h>

#include <algorithm>

#include "plan/verify_plan.h"

namespace piper {
namespace {

/// The quotient of all queues: one vertex per operation of a template, one per communication for all its devices.
class QueueGraph {
 public:
  explicit QueueGraph(const Plan& plan) : plan_(plan) {
    size_t vertices = plan.communications.size();
    for (const PlanTemplate& t : plan.templates) {
      first_.push_back(vertices);
      vertices += t.ops.size();
    }
    site_.assign(vertices, {-1, -1});
    for (size_t t = 0; t < plan.templates.size(); ++t)
      for (size_t i = 0; i < plan.templates[t].ops.size(); ++i) {
        auto& site = site_[vertex(t, i)];
        if (site.first < 0) site = {static_cast<int>(t), static_cast<int>(i)};
      }
    for (size_t t = 0; t < plan.templates.size(); ++t) add_edges(t);
  }

  /// Vertices of a cycle in time order, or none.
  std::vector<size_t> find_cycle() const {
    std::vector<int> waiting(site_.size(), 0);
    std::vector<size_t> offsets(site_.size() + 1, 0);
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
    return done == site_.size() ? std::vector<size_t>{} : walk_back(waiting);
  }

  std::string name_of(size_t v) const {
    return describe(plan_, plan_.templates[static_cast<size_t>(site_[v].first)], site_[v].second);
  }

 private:
  uint32_t vertex(size_t t, size_t op) const {
    const int communication = plan_.templates[t].ops[op].communication;
    return static_cast<uint32_t>(communication >= 0 ? static_cast<size_t>(communication) : first_[t] + op);
  }

  void add_edges(size_t t) {
    const auto& ops = plan_.templates[t].ops;
    std::vector<int> last_on(plan_.streams.size(), -1);
    int last_message = -1;
    const auto add = [&](int from, size_t to) {
      const uint32_t a = vertex(t, static_cast<size_t>(from)), b = vertex(t, to);
      // a device that sends to itself issues both halves of one transfer together
      const bool halves = a == b && static_cast<size_t>(from) + 1 == to;
      if (!halves) edges_.emplace_back(a, b);
    };
    for (size_t i = 0; i < ops.size(); ++i) {
      int& last = last_on[static_cast<size_t>(ops[i].stream)];
      if (last >= 0) add(last, i);
      last = static_cast<int>(i);
      for (const int wait : ops[i].waits) add(wait, i);
      if (ops[i].communication < 0) continue;
      if (last_message >= 0) add(last_message, i);  // for backends that serialise their streams
      last_message = static_cast<int>(i);
    }
  }

  std::vector<size_t> walk_back(const std::vector<int>& waiting) const {
    std::vector<std::vector<uint32_t>> before(site_.size());
    for (const auto& [from, to] : edges_)
      if (waiting[from] > 0 && waiting[to] > 0) before[to].push_back(from);
    size_t at = static_cast<size_t>(std::find_if(waiting.begin(), waiting.end(), [](int w) { return w > 0; }) - waiting.begin());
    std::vector<int> seen(site_.size(), -1);
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
  std::vector<size_t> first_;
  std::vector<std::pair<int, int>> site_;  // an operation that stands for the vertex
  std::vector<std::pair<uint32_t, uint32_t>> edges_;
};

}  // namespace

Checked verify_deadlock(const Plan& plan) {
  const QueueGraph graph(plan);
  const std::vector<size_t> cycle = graph.find_cycle();
  if (cycle.empty()) return Ok{};
  Diagnostic problem = error(ErrorCode::E401, {}, fmt::format("{} operations wait for each other and none can start", cycle.size()));
  constexpr size_t most = 16;
  for (size_t i = 0; i < std::min(most, cycle.size()); ++i)
    problem.notes.push_back({{}, fmt::format("{} comes before the next", graph.name_of(cycle[i]))});
  if (cycle.size() > most) problem.notes.push_back({{}, fmt::format("… and {} more", cycle.size() - most)});
  problem.helps.push_back("issue communication in the same order on all devices");
  return problem;
}

}  // namespace piper
