#include "sim/critical_path.h"

#include <algorithm>

namespace piper {

std::vector<CriticalStep> critical_path(const Simulation& simulation) {
  const sim::OpTimes& times = simulation.times;
  if (times.end.empty()) return {};
  int at = static_cast<int>(std::max_element(times.end.begin(), times.end.end()) - times.end.begin());
  std::vector<CriticalStep> path;
  while (at >= 0) {
    const auto kind =
        static_cast<int>(std::upper_bound(times.first.begin(), times.first.end(), at) - times.first.begin()) - 1;
    const auto op = static_cast<size_t>(at);
    const int before = times.cause[op];
    const double since = before >= 0 ? times.end[static_cast<size_t>(before)] : 0;
    path.push_back(
        {kind, at - times.first[static_cast<size_t>(kind)], times.start[op], times.end[op], times.start[op] - since});
    at = before;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<PathShare> path_shares(const Plan& plan, const Simulation& simulation,
                                   const std::vector<CriticalStep>& path) {
  std::vector<PathShare> shares;
  const auto add = [&](std::string what, double seconds) {
    if (seconds <= 0) return;
    auto found = std::find_if(shares.begin(), shares.end(), [&](const PathShare& s) { return s.what == what; });
    if (found == shares.end()) found = shares.insert(shares.end(), {std::move(what), 0, 0});
    found->seconds += seconds;
    ++found->steps;
  };
  for (const CriticalStep& step : path) {
    const PlannedOp& op = plan.templates[static_cast<size_t>(simulation.plan_of[static_cast<size_t>(step.kind)])]
                              .ops[static_cast<size_t>(step.op)];
    const bool transfer = op.kind == OpKind::Send || op.kind == OpKind::Recv;
    add(op.kind == OpKind::Run && op.label.pass ? std::string(name(*op.label.pass))
        : transfer                              ? "transfer"
                                                : std::string(name(op.kind)),
        step.end - step.start);
    add("issue", step.issued);
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const PathShare& a, const PathShare& b) { return a.seconds > b.seconds; });
  return shares;
}

}  // namespace piper
