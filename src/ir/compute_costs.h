// How long computations and messages of a DAG take alone: by the cluster's formulas, or as measured.
#pragma once

#include <map>
#include <tuple>

#include "base/result.h"
#include "cost/cost_table.h"
#include "cost/traffic.h"
#include "ir/training_dag.h"

namespace piper {

/// Where times come from. Measured costs, if given, cover all computations.
struct Costs {
  const Cluster& cluster;
  const CostTable* measured = nullptr;
};

/// Caches what groups and slices have in common, so that many of them cost little. DAG and costs outlive it.
class ComputeCosts {
 public:
  ComputeCosts(const TrainingDag& dag, const Costs& costs) : dag_(dag), costs_(costs) {}

  /// Seconds of a pass of a chunk on the slowest device of a group. E411: it was not measured.
  Result<double> pass(ChunkId chunk, Pass pass, const PassWork& work, GroupId group);
  Result<double> update(const Node& node);
  /// Seconds until every device of a group has received `bytes` bytes from another group.
  double transfer(GroupId from, GroupId to, int64_t bytes);

 private:
  double by_formula(GroupId group, const DeviceWork& work);
  const std::vector<const DeviceKind*>& kinds(GroupId group);
  int level(GroupId from, GroupId to);

  const TrainingDag& dag_;
  Costs costs_;
  std::map<std::tuple<ChunkId, Pass, GroupId>, double> passes_;
  std::map<GroupId, std::vector<const DeviceKind*>> kinds_;
  std::map<std::pair<GroupId, GroupId>, int> levels_;
};

}  // namespace piper
