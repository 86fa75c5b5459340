#include "search/spaces.h"

#include "base/source.h"
#include "cost/load_cluster.h"
#include "model/analytic/analytic_model.h"
#include "model/analytic/step_overrides.h"
#include "must.h"

namespace piper::search_cases {
namespace {

ModelConfig random_model(property::Random& random) {
  const std::vector<Architecture> all = {Architecture::Gpt, Architecture::Llama3, Architecture::Qwen3Moe,
                                         Architecture::Mixtral};
  ModelConfig config = usual_config(random.pick(all));
  config.name = "random " + std::string(name(config.arch));
  config.heads = random.pick<int64_t>({4, 8});
  config.kv_heads = random.pick<int64_t>({2, 4});
  if (config.arch == Architecture::Gpt) config.kv_heads = 0;
  config.hidden = 256 * random.between(1, 4);
  config.layers = random.between(2, 9);
  config.vocab = random.pick<int64_t>({512, 4096, 50'000});
  config.seq = 4096;
  config.tie_embeddings = random.percent(30);
  if (has_experts(config.arch)) {
    config.experts = random.pick<int64_t>({4, 8});
    config.top_k = 2;
    config.moe_ffn = 2 * config.hidden;
  } else {
    config.ffn = 4 * config.hidden;
  }
  complete(config);
  return config;
}

}  // namespace

Problem problem_for(const ModelConfig& config, int64_t batch, const Cluster& cluster, int devices, Fixed fixed,
                    int64_t sequence) {
  StepOverrides step;
  step.batch = batch;
  step.sequence = sequence;
  const auto load = [config, step](LayerForm form, TokenForm tokens) -> Result<std::shared_ptr<const ModelGraph>> {
    PIPER_TRY(ModelGraph model, analytic_model(config, resolve(step, config), form, tokens));
    return std::make_shared<const ModelGraph>(std::move(model));
  };
  return must(make_problem(load, cluster, {}, devices, {}, std::move(fixed)));
}

Cluster in_small_nodes(Cluster cluster) {
  cluster.levels[0].joins = 2;
  for (NodeRun& run : cluster.nodes) run.devices = 2;
  return cluster;
}

Cluster with_slow_nodes(Cluster cluster, double share) {
  DeviceKind slow = cluster.kinds[0];
  slow.name = "slow";
  slow.compute_efficiency *= share;
  slow.memory_efficiency *= share;
  slow.memory = *slow.memory / 2;
  cluster.kinds.push_back(slow);
  NodeRun more = cluster.nodes[0];
  more.kind = static_cast<int>(cluster.kinds.size()) - 1;
  cluster.nodes[0].count = 1;
  cluster.nodes.push_back(more);
  return cluster;
}

Problem random_problem(property::Random& random) {
  const ModelConfig config = random_model(random);
  const int64_t batch = int64_t{8} * random.between(1, 4);
  Cluster cluster = must(load_cluster(random.pick<std::string>({"h100", "a100-40", "ethernet"})));
  if (random.percent(50) && cluster.levels.size() > 1) cluster = in_small_nodes(std::move(cluster));
  if (random.percent(25) && cluster.nodes.size() == 1) cluster = with_slow_nodes(std::move(cluster), 0.6);
  const int devices = std::min(random.pick<int>({2, 4, 4, 8}), device_limit(cluster));
  return problem_for(config, batch, cluster, devices, {}, random.percent(40) ? 4096 : 512);
}

}  // namespace piper::search_cases
