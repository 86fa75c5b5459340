#include "model/analytic/config_fields.h"

namespace piper {
namespace {

// The bounds keep every product of two of these below 2^48; longer products saturate and are refused.
constexpr int64_t widest = 1 << 20;
constexpr int64_t longest = 1 << 24;

constexpr IntegerField integers[] = {
    {"hidden", &ModelConfig::hidden, 1, widest, AppliesTo::All, Need::Required},
    {"layers", &ModelConfig::layers, 1, 10'000, AppliesTo::All, Need::Required},
    {"heads", &ModelConfig::heads, 1, 1 << 14, AppliesTo::All, Need::Required},
    {"kv_heads", &ModelConfig::kv_heads, 1, 1 << 14, AppliesTo::NotLatent, Need::Optional},
    {"head_dim", &ModelConfig::head_dim, 1, 1 << 14, AppliesTo::NotLatent, Need::Optional},
    {"q_lora_rank", &ModelConfig::q_lora_rank, 0, widest, AppliesTo::Latent, Need::Optional},
    {"kv_lora_rank", &ModelConfig::kv_lora_rank, 1, widest, AppliesTo::Latent, Need::Required},
    {"qk_nope_head_dim", &ModelConfig::qk_nope_head_dim, 1, 1 << 14, AppliesTo::Latent, Need::Required},
    {"qk_rope_head_dim", &ModelConfig::qk_rope_head_dim, 1, 1 << 14, AppliesTo::Latent, Need::Required},
    {"v_head_dim", &ModelConfig::v_head_dim, 1, 1 << 14, AppliesTo::Latent, Need::Required},
    {"ffn", &ModelConfig::ffn, 1, 1 << 22, AppliesTo::Dense, Need::Required},
    {"dense_layers", &ModelConfig::dense_layers, 0, 10'000, AppliesTo::Mixture, Need::Optional},
    {"dense_ffn", &ModelConfig::dense_ffn, 1, 1 << 22, AppliesTo::Mixture, Need::Optional},
    {"experts", &ModelConfig::experts, 1, 1 << 16, AppliesTo::Mixture, Need::Required},
    {"top_k", &ModelConfig::top_k, 1, 1 << 16, AppliesTo::Mixture, Need::Required},
    {"moe_ffn", &ModelConfig::moe_ffn, 1, 1 << 22, AppliesTo::Mixture, Need::Required},
    {"shared_experts", &ModelConfig::shared_experts, 0, 1 << 10, AppliesTo::Mixture, Need::Optional},
    {"n_group", &ModelConfig::n_group, 1, 1 << 16, AppliesTo::Mixture, Need::Optional},
    {"topk_group", &ModelConfig::topk_group, 1, 1 << 16, AppliesTo::Mixture, Need::Optional},
    {"vocab", &ModelConfig::vocab, 1, longest, AppliesTo::All, Need::Required},
    {"seq", &ModelConfig::seq, 1, longest, AppliesTo::All, Need::Optional},
};

constexpr NumberField numbers[] = {
    {"capacity_factor", &ModelConfig::capacity_factor, 0.01, 1000, AppliesTo::Mixture},
    {"rope_theta", &ModelConfig::rope_theta, 0, 1e15, AppliesTo::All},
};

constexpr SwitchField switches[] = {
    {"tie_embeddings", &ModelConfig::tie_embeddings, AppliesTo::All},
    {"qk_norm", &ModelConfig::qk_norm, AppliesTo::NotLatent},
    {"bias", &ModelConfig::bias, AppliesTo::All},
    {"dropout", &ModelConfig::dropout, AppliesTo::All},
    {"flash_attention", &ModelConfig::flash_attention, AppliesTo::All},
};

}  // namespace

bool applies(AppliesTo which, Architecture arch) {
  switch (which) {
    case AppliesTo::All:
      return true;
    case AppliesTo::Dense:
      return !has_experts(arch);
    case AppliesTo::Mixture:
      return has_experts(arch);
    case AppliesTo::Latent:
      return has_latent_attention(arch);
    case AppliesTo::NotLatent:
      return !has_latent_attention(arch);
  }
  return false;
}

std::span<const IntegerField> integer_fields() {
  return integers;
}
std::span<const NumberField> number_fields() {
  return numbers;
}
std::span<const SwitchField> switch_fields() {
  return switches;
}

std::vector<std::string> model_keys() {
  std::vector<std::string> keys = {"name", "arch", "act", "norm"};
  for (const IntegerField& field : integers) keys.emplace_back(field.key);
  for (const NumberField& field : numbers) keys.emplace_back(field.key);
  for (const SwitchField& field : switches) keys.emplace_back(field.key);
  return keys;
}

}  // namespace piper
