#include "sim/critical_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace piper {

std::vector<CriticalStep> critical_path(const Simulation& simulation) {
  const sim::SimulatedTimes& times = simulation.times;
  if (times.end.empty()) return {};
  const auto last = std::max_element(times.end.begin(), times.end.end());
  sim::SimulatedOpId at(static_cast<size_t>(last - times.end.begin()));
  std::vector<CriticalStep> path;
  while (at.valid()) {
    const sim::SimulatedOpId before = times.cause[at];
    const double since = before.valid() ? times.end[before] : 0;
    path.push_back({times.lane_of(at), times.op_of(at), times.start[at], times.end[at], times.start[at] - since});
    at = before;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

namespace {

class Shares {
 public:
  void add(std::string what, double seconds) {
    if (seconds <= 0) return;
    const auto [found, fresh] = index_.try_emplace(what, shares_.size());
    if (fresh) shares_.push_back({std::move(what), 0, 0});
    shares_[found->second].seconds += seconds;
    ++shares_[found->second].steps;
  }
  std::vector<PathShare> most_first() && {
    std::stable_sort(shares_.begin(), shares_.end(),
                     [](const PathShare& a, const PathShare& b) { return a.seconds > b.seconds; });
    return std::move(shares_);
  }

 private:
  std::vector<PathShare> shares_;
  std::unordered_map<std::string, size_t> index_;
};

const PlannedOp& op_of(const Plan& plan, const Simulation& simulation, const CriticalStep& step) {
  return plan.templates[simulation.plan_of[step.lane]].ops[step.op];
}

std::string category(const Simulation& simulation, const PlannedOp& op) {
  if (op.kind == OpKind::Run && op.label.pass) return std::string(name(*op.label.pass));
  if (!op.communication.valid()) return std::string(name(op.kind));
  const bool transfer = op.kind == OpKind::Send || op.kind == OpKind::Recv;
  const std::string kind(transfer ? "transfer" : name(op.kind));
  const int level = simulation.limited_by[op.communication];
  return level < 0 ? kind : fmt::format("{}, {}", kind, simulation.levels[static_cast<size_t>(level)].name);
}

}  // namespace

std::vector<PathShare> path_shares(const Plan& plan, const Simulation& simulation,
                                   const std::vector<CriticalStep>& path) {
  Shares shares;
  for (const CriticalStep& step : path) {
    shares.add(category(simulation, op_of(plan, simulation, step)), step.end - step.start);
    shares.add("issue", step.issued);
  }
  return std::move(shares).most_first();
}

std::vector<PathShare> path_operations(const Plan& plan, const Simulation& simulation,
                                       const std::vector<CriticalStep>& path) {
  Shares shares;
  for (const CriticalStep& step : path) {
    const PlannedOp& op = op_of(plan, simulation, step);
    const std::string what = describe(plan, {op.label.name, op.label.pass, -1});
    const bool computes = op.kind == OpKind::Run;
    shares.add(computes ? what : fmt::format("{} {}", name(op.kind), what), step.end - step.start);
  }
  return std::move(shares).most_first();
}

}  // namespace piper
