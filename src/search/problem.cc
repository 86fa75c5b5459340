#include "search/problem.h"

namespace piper {

Result<Problem> make_problem(std::array<std::shared_ptr<const ModelGraph>, 3> models, Cluster cluster,
                             std::optional<CostTable> costs, int devices, std::optional<int64_t> memory, Fixed fixed) {
  Problem out;
  PIPER_CHECK(check_devices(cluster, devices, {}));
  PIPER_CHECK(check_dtype(cluster, devices, models[0]->step.weights));
  if (memory)
    for (DeviceKind& kind : cluster.kinds) kind.memory = *memory;
  out.limits.devices = devices;
  out.limits.batch = models[0]->step.batch;
  out.limits.model = facts_of(*models[0]);
  out.limits.sharded = facts_of(*models[1]);
  for (const LinkLevel& level : cluster.levels) out.limits.level_sizes.push_back(level.joins);
  out.limits.fixed = std::move(fixed);
  out.models = std::move(models);
  out.cluster = std::move(cluster);
  out.costs = std::move(costs);
  return out;
}

const std::shared_ptr<const ModelGraph>& model_for(const Problem& problem, const Candidate& candidate) {
  const LayerForm form = candidate.tp == 1      ? LayerForm::Blocks
                         : candidate.vocabulary ? LayerForm::ShardedVocabulary
                                                : LayerForm::Sharded;
  return problem.models[static_cast<size_t>(form)];
}

const ModelFacts& facts_for(const Problem& problem, const Candidate& candidate) {
  return candidate.tp > 1 ? problem.limits.sharded : problem.limits.model;
}

}  // namespace piper
