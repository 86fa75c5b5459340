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
    {"kv_heads", &ModelConfig::kv_heads, 1, 1 << 14, AppliesTo::AdjustableAttention, Need::Optional},
    {"head_dim", &ModelConfig::head_dim, 1, 1 << 14, AppliesTo::AdjustableAttention, Need::Optional},
    {"q_lora_rank", &ModelConfig::q_lora_rank, 0, widest, AppliesTo::Latent, Need::Optional},
    {"kv_lora_rank", &ModelConfig::kv_lora_rank, 1, widest, AppliesTo::Latent, Need::Required},
    {"qk_nope_head_dim", &ModelConfig::qk_nope_head_dim, 1, 1 << 14, AppliesTo::Latent, Need::Required},
    {"qk_rope_head_dim", &ModelConfig::qk_rope_head_dim, 1, 1 << 14, AppliesTo::Latent, Need::Required},
    {"v_head_dim", &ModelConfig::v_head_dim, 1, 1 << 14, AppliesTo::Latent, Need::Required},
    {"ffn", &ModelConfig::ffn, 1, 1 << 22, AppliesTo::Dense, Need::Required},
    {"dense_layers", &ModelConfig::dense_layers, 0, 10'000, AppliesTo::AdjustableMixture, Need::Optional},
    {"dense_ffn", &ModelConfig::dense_ffn, 1, 1 << 22, AppliesTo::AdjustableMixture, Need::Optional},
    {"experts", &ModelConfig::experts, 1, 1 << 16, AppliesTo::Mixture, Need::Required},
    {"top_k", &ModelConfig::top_k, 1, 1 << 16, AppliesTo::Mixture, Need::Required},
    {"moe_ffn", &ModelConfig::moe_ffn, 1, 1 << 22, AppliesTo::Mixture, Need::Required},
    {"shared_experts", &ModelConfig::shared_experts, 0, 1 << 10, AppliesTo::AdjustableMixture, Need::Optional},
    {"n_group", &ModelConfig::n_group, 1, 1 << 16, AppliesTo::AdjustableMixture, Need::Optional},
    {"topk_group", &ModelConfig::topk_group, 1, 1 << 16, AppliesTo::AdjustableMixture, Need::Optional},
    {"encoder_layers", &ModelConfig::encoder_layers, 1, 10'000, AppliesTo::TwoBranch, Need::Required},
    {"vocab", &ModelConfig::vocab, 1, longest, AppliesTo::All, Need::Required},
    {"seq", &ModelConfig::seq, 1, longest, AppliesTo::All, Need::Optional},
};

constexpr NumberField numbers[] = {
    {"capacity_factor", &ModelConfig::capacity_factor, 0.01, 1000, AppliesTo::Mixture},
    {"router_aux_loss_coef", &ModelConfig::router_aux_loss_coef, 0, 1000, AppliesTo::AdjustableMixture},
    {"router_z_loss_coef", &ModelConfig::router_z_loss_coef, 0, 1000, AppliesTo::AdjustableMixture},
    {"router_bias_rate", &ModelConfig::router_bias_rate, 0, 1, AppliesTo::AdjustableMixture},
    {"routed_scaling_factor", &ModelConfig::routed_scaling_factor, 1e-3, 1000, AppliesTo::AdjustableMixture},
    {"dropout_rate", &ModelConfig::dropout_rate, 0, 0.99, AppliesTo::Adjustable},
    {"rope_theta", &ModelConfig::rope_theta, 0, 1e15, AppliesTo::Adjustable},
    {"norm_eps", &ModelConfig::norm_eps, 1e-12, 0.1, AppliesTo::Adjustable},
};

constexpr SwitchField switches[] = {
    {"tie_embeddings", &ModelConfig::tie_embeddings, AppliesTo::Adjustable},
    {"qk_norm", &ModelConfig::qk_norm, AppliesTo::AdjustableAttention},
    {"bias", &ModelConfig::bias, AppliesTo::Adjustable},
    {"dropout", &ModelConfig::dropout, AppliesTo::Adjustable},
    {"flash_attention", &ModelConfig::flash_attention, AppliesTo::Adjustable},
    {"dropless", &ModelConfig::dropless, AppliesTo::Mixture},
    {"expert_load", &ModelConfig::expert_load, AppliesTo::AdjustableMixture},
    {"norm_topk_prob", &ModelConfig::norm_topk_prob, AppliesTo::AdjustableMixture},
};

}  // namespace

bool applies(AppliesTo which, Architecture arch) {
  switch (which) {
    case AppliesTo::All:
      return true;
    case AppliesTo::Adjustable:
      return !is_reference(arch);
    case AppliesTo::AdjustableAttention:
      return !has_latent_attention(arch) && !is_reference(arch);
    case AppliesTo::Latent:
      return has_latent_attention(arch);
    case AppliesTo::Dense:
      return !has_experts(arch);
    case AppliesTo::Mixture:
      return has_experts(arch);
    case AppliesTo::AdjustableMixture:
      return has_experts(arch) && !is_reference(arch);
    case AppliesTo::TwoBranch:
      return arch == Architecture::TwoBranch;
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
  std::vector<std::string> keys = {"name", "arch", "act", "norm", "scoring_func", "router_aux_loss",
                                   "init"};  // init: read by src/train
  for (const IntegerField& field : integers) keys.emplace_back(field.key);
  for (const NumberField& field : numbers) keys.emplace_back(field.key);
  for (const SwitchField& field : switches) keys.emplace_back(field.key);
  return keys;
}

}  // namespace piper
