#include "model/analytic/model_config.h"

#include <array>

namespace piper {
namespace {

constexpr std::array<std::string_view, 9> architectures = {
    "gpt", "llama3", "qwen3-dense", "qwen3-moe", "mixtral", "deepseek_v3", "reference", "reference-moe", "two-branch"};

}  // namespace

std::string_view name(Architecture arch) {
  return architectures[static_cast<size_t>(arch)];
}

std::optional<Architecture> architecture_named(std::string_view text) {
  for (size_t i = 0; i < architectures.size(); ++i)
    if (architectures[i] == text) return static_cast<Architecture>(i);
  return std::nullopt;
}

std::vector<std::string> architecture_names() {
  return {architectures.begin(), architectures.end()};
}

bool has_experts(Architecture arch) {
  return arch == Architecture::Qwen3Moe || arch == Architecture::Mixtral || arch == Architecture::DeepSeekV3 ||
         arch == Architecture::ReferenceMoe;
}

bool has_latent_attention(Architecture arch) {
  return arch == Architecture::DeepSeekV3;
}

bool has_learned_positions(Architecture arch) {
  return arch == Architecture::Gpt || is_reference(arch);
}

bool is_reference(Architecture arch) {
  return arch == Architecture::Reference || arch == Architecture::ReferenceMoe;
}

ModelConfig usual_config(Architecture arch) {
  ModelConfig config;
  config.arch = arch;
  config.qk_norm = arch == Architecture::Qwen3Dense || arch == Architecture::Qwen3Moe;
  if (arch == Architecture::Gpt) {
    config.tie_embeddings = true;
    config.bias = true;
    config.dropout = true;
    config.flash_attention = false;
    config.act = Activation::Gelu;
    config.norm = Norm::LayerNorm;
  }
  if (arch == Architecture::ReferenceMoe) {
    config.top_k = 2;
    config.capacity_factor = 1.25;
  }
  return config;
}

void complete(ModelConfig& config) {
  if (!is_reference(config.arch)) return;
  const int64_t width = (8 * config.hidden + 191) / 192 * 64;  // 8/3 of hidden, rounded up to a multiple of 64
  if (!has_experts(config.arch) && config.ffn == 0) config.ffn = width;
  if (has_experts(config.arch) && config.moe_ffn == 0) config.moe_ffn = width / 2;
}

int64_t key_value_heads(const ModelConfig& config) {
  return config.kv_heads > 0 ? config.kv_heads : config.heads;
}

int64_t head_width(const ModelConfig& config) {
  return config.head_dim > 0 ? config.head_dim : config.hidden / config.heads;
}

int64_t dense_width(const ModelConfig& config) {
  return has_experts(config.arch) ? config.dense_ffn : config.ffn;
}

bool is_mixture_layer(const ModelConfig& config, int64_t index) {
  return has_experts(config.arch) && index >= config.dense_layers;
}

bool has_router_bias(const ModelConfig& config) {
  return config.arch == Architecture::DeepSeekV3 || config.scoring_func == RouterScores::Sigmoid ||
         config.router_bias_rate > 0;
}

}  // namespace piper
