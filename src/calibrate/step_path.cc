#include "calibrate/step_path.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/critical_path.h"
#include "sim/flows.h"

namespace piper {
namespace {

/// Adds operations of the same kind up: layers and microbatches are alike.
class PathBuilder {
 public:
  PathBuilder(const Plan& plan, const Cluster& cluster)
      : plan_(plan), cluster_(cluster), groupings_(sim::find_groupings(plan, cluster)) {}

  void add(const PlannedOp& op, int device, double seconds) {
    const double alone = op.communication.valid() ? communication(op, device) : computation(op, device);
    if (alone > 0)
      *times_ += seconds / alone;
    else
      path_.other += seconds;
  }
  void wait(double seconds) { path_.other += seconds; }
  StepPath finish() && { return std::move(path_); }

 private:
  double computation(const PlannedOp& op, int device) {
    const DeviceKind& kind = kind_of(cluster_, device);
    const PlanWork& work = plan_.works[op.work];
    const int index = static_cast<int>(&kind - cluster_.kinds.data());
    const auto same = [&](const StepPath::Computation& other) {
      return other.kind == index && other.work->dtype == work.dtype && other.work->does == work.does;
    };
    auto found = std::ranges::find_if(path_.computations, same);
    if (found == path_.computations.end()) found = path_.computations.insert(found, {index, &work, 0});
    times_ = &found->times;
    return compute_seconds(kind, work.dtype, work.does);
  }

  double communication(const PlannedOp& op, int device) {
    const sim::GroupingId id = groupings_.of_communication[op.communication];
    const sim::Grouping& grouping = groupings_.all[id];
    const auto d = static_cast<size_t>(device);
    const sim::ProcessGroupId group = op.kind == OpKind::Recv ? grouping.of_receiver[d] : grouping.of_member[d];
    const int64_t bytes = plan_.communications[op.communication].bytes;
    const auto [found, fresh] = communications_.try_emplace({id, group, op.kind, bytes}, path_.communications.size());
    if (fresh) path_.communications.push_back({grouping.groups[group], op.kind, bytes, 0});
    StepPath::Communication& entry = path_.communications[found->second];
    times_ = &entry.times;
    return sim::flow_seconds(cluster_, entry.group, op.kind, bytes);
  }

  const Plan& plan_;
  const Cluster& cluster_;
  sim::Groupings groupings_;
  StepPath path_;
  double* times_ = nullptr;  // of the entry found last
  std::map<std::tuple<sim::GroupingId, sim::ProcessGroupId, OpKind, int64_t>, size_t> communications_;
};

}  // namespace

StepPath path_of(const Plan& plan, const Cluster& cluster, const Simulation& simulation) {
  PathBuilder path(plan, cluster);
  for (const CriticalStep& step : critical_path(simulation)) {
    path.wait(step.issued);
    path.add(plan.templates[simulation.plan_of[step.lane]].ops[step.op], simulation.devices[step.lane][0],
             step.end - step.start);
  }
  return std::move(path).finish();
}

StepPath path_of(const PlanWork& work) {
  StepPath path;
  path.computations.push_back({0, &work, 1});
  return path;
}

double seconds(const StepPath& path, const Cluster& cluster) {
  double out = path.other;
  for (const StepPath::Computation& c : path.computations)
    out += c.times * compute_seconds(cluster.kinds[static_cast<size_t>(c.kind)], c.work->dtype, c.work->does);
  for (const StepPath::Communication& c : path.communications)
    out += c.times * sim::flow_seconds(cluster, c.group, c.kind, c.bytes);
  return out;
}

}  // namespace piper
