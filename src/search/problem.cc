#include "search/problem.h"

#include <algorithm>

#include "schedule/shard_target.h"

namespace piper {

Result<std::shared_ptr<const ModelGraph>> ModelForms::get(LayerForm layers, TokenForm tokens) {
  const std::lock_guard lock(mutex_);
  const std::tuple key(layers, tokens.divided, tokens.key_heads, tokens.ring);
  const auto found = loaded_.find(key);
  return found != loaded_.end() ? found->second : loaded_.emplace(key, load_(layers, tokens)).first->second;
}

namespace {

/// The tokens of every value are known, and no chunk has rows of several samples.
bool divides_context(const ModelGraph& model) {
  return model.context &&
         std::ranges::none_of(model.chunks, [&](const Chunk& chunk) { return is_made_of_experts(model, chunk); });
}

Checked add_facts(SpaceLimits& limits, ModelForms& models) {
  PIPER_TRY(const auto whole, models.get(LayerForm::Blocks, {}));
  limits.batch = whole->step.batch;
  limits.sequence = whole->step.sequence;
  limits.model = limits.sharded = facts_of(*whole);
  if (limits.devices == 1) return Ok{};
  const auto fixed_to_one = [&](Axis axis) { return limits.fixed.size[axis] == 1; };
  if (!fixed_to_one(Axis::Tp)) {
    PIPER_TRY(const auto parts, models.get(LayerForm::Sharded, {}));
    limits.sharded = facts_of(*parts);
  }
  if (fixed_to_one(Axis::Cp) || limits.sequence < 2) return Ok{};
  const auto parts = models.get(LayerForm::Sharded, {.divided = true});
  limits.context = parts && divides_context(**parts);
  if (limits.context && fixed_to_one(Axis::Tp)) limits.sharded = facts_of(**parts);
  return Ok{};
}

}  // namespace

Result<Problem> make_problem(ModelLoader load, Cluster cluster, std::optional<CostTable> costs, int devices,
                             std::optional<int64_t> memory, Fixed fixed) {
  Problem out;
  out.models = std::make_shared<ModelForms>(std::move(load));
  PIPER_TRY(const auto whole, out.models->get(LayerForm::Blocks, {}));
  out.model = whole->name;
  out.step = whole->step;
  out.limits.fixed = std::move(fixed);
  out.limits.devices = devices;
  PIPER_CHECK(add_facts(out.limits, *out.models));
  PIPER_CHECK(check_devices(cluster, devices, {}));
  PIPER_CHECK(check_dtype(cluster, devices, out.step.weights));
  if (memory)
    for (DeviceKind& kind : cluster.kinds) kind.memory = *memory;
  for (const LinkLevel& level : cluster.levels) out.limits.level_sizes.push_back(level.joins);
  out.cluster = std::move(cluster);
  out.costs = std::move(costs);
  return out;
}

Problem with_batch(const Problem& problem, int64_t batch) {
  Problem out = problem;
  out.models = std::make_shared<ModelForms>(
      [models = problem.models, batch](LayerForm layers,
                                       TokenForm tokens) -> Result<std::shared_ptr<const ModelGraph>> {
        PIPER_TRY(const auto model, models->get(layers, tokens));
        auto changed = std::make_shared<ModelGraph>(*model);
        changed->step.batch = batch;
        return std::shared_ptr<const ModelGraph>(std::move(changed));
      });
  out.step.batch = out.limits.batch = batch;
  return out;
}

Result<std::shared_ptr<const ModelGraph>> model_for(const Problem& problem, const Candidate& candidate) {
  TokenForm tokens;
  tokens.divided = candidate.cp > 1;
  if (tokens.divided && candidate.heads) tokens.key_heads = int64_t{candidate.cp} * candidate.tp;
  return problem.models->get(candidate.vocabulary        ? LayerForm::ShardedVocabulary
                             : divides_layers(candidate) ? LayerForm::Sharded
                                                         : LayerForm::Blocks,
                             tokens);
}

const ModelFacts& facts_for(const Problem& problem, const Candidate& candidate) {
  return divides_layers(candidate) ? problem.limits.sharded : problem.limits.model;
}

}  // namespace piper
