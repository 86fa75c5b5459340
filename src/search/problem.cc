#include "search/problem.h"

namespace piper {

namespace {

Checked load_forms(Problem& problem) {
  const bool divided = problem.limits.fixed.size[static_cast<size_t>(Axis::Tp)] != 1;
  for (const LayerForm form : {LayerForm::Blocks, LayerForm::Sharded, LayerForm::ShardedVocabulary}) {
    PIPER_TRY(problem.models[static_cast<size_t>(form)], problem.load(divided ? form : LayerForm::Blocks, TokenForm{}));
  }
  return Ok{};
}

}  // namespace

Result<Problem> make_problem(ModelLoader load, Cluster cluster, std::optional<CostTable> costs, int devices,
                             std::optional<int64_t> memory, Fixed fixed) {
  Problem out;
  out.load = std::move(load);
  out.limits.fixed = std::move(fixed);
  PIPER_CHECK(load_forms(out));
  PIPER_CHECK(check_devices(cluster, devices, {}));
  PIPER_CHECK(check_dtype(cluster, devices, out.models[0]->step.weights));
  if (memory)
    for (DeviceKind& kind : cluster.kinds) kind.memory = *memory;
  out.limits.devices = devices;
  out.limits.batch = out.models[0]->step.batch;
  out.limits.model = facts_of(*out.models[0]);
  out.limits.sharded = facts_of(*out.models[1]);
  for (const LinkLevel& level : cluster.levels) out.limits.level_sizes.push_back(level.joins);
  out.cluster = std::move(cluster);
  out.costs = std::move(costs);
  return out;
}

Problem with_batch(const Problem& problem, int64_t batch) {
  const auto changed = [batch](const ModelGraph& model) -> std::shared_ptr<const ModelGraph> {
    auto out = std::make_shared<ModelGraph>(model);
    out->step.batch = batch;
    return out;
  };
  Problem out = problem;
  for (auto& model : out.models) model = changed(*model);
  out.load = [load = problem.load, changed](LayerForm form,
                                            TokenForm tokens) -> Result<std::shared_ptr<const ModelGraph>> {
    PIPER_TRY(const auto loaded, load(form, tokens));
    return changed(*loaded);
  };
  out.limits.batch = batch;
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
