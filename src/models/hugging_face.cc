#include "models/hugging_face.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace piper {
namespace {

using Json = nlohmann::ordered_json;

struct Family {
  Architecture arch;
  std::string_view model_type, architecture;
  std::string_view mixture;         // where the router and the experts are
  std::string_view gate, up, down;  // of one expert
};
constexpr std::array families = {
    Family{Architecture::Llama3, "llama", "LlamaForCausalLM", "", "", "", ""},
    Family{Architecture::Qwen3Dense, "qwen3", "Qwen3ForCausalLM", "", "", "", ""},
    Family{Architecture::Qwen3Moe, "qwen3_moe", "Qwen3MoeForCausalLM", "mlp", "gate_proj", "up_proj", "down_proj"},
    Family{Architecture::Mixtral, "mixtral", "MixtralForCausalLM", "block_sparse_moe", "w1", "w3", "w2"},
};

/// Ends of names inside a layer.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> in_layer = {{
    {"attention.norm.", "input_layernorm."},
    {"attention.q.", "self_attn.q_proj."},
    {"attention.k.", "self_attn.k_proj."},
    {"attention.v.", "self_attn.v_proj."},
    {"attention.q_norm.", "self_attn.q_norm."},
    {"attention.k_norm.", "self_attn.k_norm."},
    {"attention.out.", "self_attn.o_proj."},
    {"mlp.norm.", "post_attention_layernorm."},
    {"mlp.gate.", "mlp.gate_proj."},
    {"mlp.up.", "mlp.up_proj."},
    {"mlp.down.", "mlp.down_proj."},
}};
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> outside = {{
    {"embed.weight", "model.embed_tokens.weight"},
    {"head.norm.weight", "model.norm.weight"},
    {"head.weight", "lm_head.weight"},
}};

const Family* family_of(const ModelConfig& c) {
  const bool same = c.act == Activation::Swiglu && c.norm == Norm::RmsNorm && c.shared_experts == 0 && c.n_group == 0 &&
                    c.qk_norm == usual_config(c.arch).qk_norm;
  for (const Family& family : families) {
    if (family.arch != c.arch || !same) continue;
    if (c.bias && c.arch == Architecture::Mixtral) return nullptr;  // has none
    if (c.bias && c.arch != Architecture::Llama3) return nullptr;   // only of attention
    if (c.dense_layers > 0 && c.arch == Architecture::Mixtral) return nullptr;
    return &family;
  }
  return nullptr;
}

/// One name, or those of all experts.
std::vector<SavedName> names_of(const std::string& name, const Family& family, int64_t experts) {
  for (const auto& [own, theirs] : outside)
    if (name == own) return {{name, std::string(theirs)}};
  constexpr std::string_view layer = "layer.";
  if (!name.starts_with(layer)) return {};
  const size_t dot = name.find('.', layer.size());
  const std::string prefix = fmt::format("model.layers.{}.", name.substr(layer.size(), dot - layer.size()));
  const std::string rest = name.substr(dot + 1);
  for (const auto& [own, theirs] : in_layer)
    if (rest.starts_with(own)) return {{name, fmt::format("{}{}{}", prefix, theirs, rest.substr(own.size()))}};
  if (rest == "dispatch.norm.weight") return {{name, prefix + "post_attention_layernorm.weight"}};
  if (rest == "dispatch.router.weight") return {{name, fmt::format("{}{}.gate.weight", prefix, family.mixture)}};
  const std::array<std::pair<std::string_view, std::string_view>, 3> of_expert = {
      {{"experts.gate.weight", family.gate}, {"experts.up.weight", family.up}, {"experts.down.weight", family.down}}};
  std::vector<SavedName> out;
  for (const auto& [own, theirs] : of_expert)
    for (int64_t e = 0; e < (rest == own ? experts : 0); ++e)
      out.push_back({name, fmt::format("{}{}.experts.{}.{}.weight", prefix, family.mixture, e, theirs), e, experts});
  return out;
}

std::string config_of(const ModelConfig& c, const StepConfig& step, const Family& family) {
  Json out;
  out["architectures"] = {family.architecture};
  out["model_type"] = family.model_type;
  out["dtype"] = name(step.weights);
  out["vocab_size"] = c.vocab;
  out["hidden_size"] = c.hidden;
  out["num_hidden_layers"] = c.layers;
  out["num_attention_heads"] = c.heads;
  out["num_key_value_heads"] = key_value_heads(c);
  out["head_dim"] = head_width(c);
  out["max_position_embeddings"] = std::max(c.seq, step.sequence);
  out["hidden_act"] = "silu";
  out["rms_norm_eps"] = c.norm_eps;
  const double theta = c.rope_theta > 0 ? c.rope_theta : 10'000;
  out["rope_theta"] = theta;  // of transformers 4
  out["rope_parameters"] = {{"rope_theta", theta}, {"rope_type", "default"}};
  out["tie_word_embeddings"] = c.tie_embeddings;
  out["attention_bias"] = c.bias;
  if (c.arch == Architecture::Llama3) out["mlp_bias"] = c.bias;
  if (!has_experts(c.arch)) {
    out["intermediate_size"] = c.ffn;
  } else {
    out["num_experts_per_tok"] = c.top_k;
    out["router_aux_loss_coef"] = c.router_aux_loss_coef;
    out["num_local_experts"] = c.experts;
  }
  if (c.arch == Architecture::Mixtral) out["intermediate_size"] = c.moe_ffn;
  if (c.arch == Architecture::Qwen3Moe) {
    out["num_experts"] = c.experts;
    out["moe_intermediate_size"] = c.moe_ffn;
    out["intermediate_size"] = c.dense_layers > 0 ? c.dense_ffn : c.moe_ffn;
    out["norm_topk_prob"] = true;
    out["decoder_sparse_step"] = 1;
    out["mlp_only_layers"] = Json::array();
    for (int64_t layer = 0; layer < c.dense_layers; ++layer) out["mlp_only_layers"].push_back(layer);
  }
  return out.dump(2) + "\n";
}

}  // namespace

std::optional<HuggingFaceModel> hugging_face_model(const ModelConfig& model, const StepConfig& step,
                                                   const std::vector<std::string>& parameters) {
  const Family* family = family_of(model);
  if (!family) return {};
  HuggingFaceModel out;
  for (const std::string& parameter : parameters) {
    const std::vector<SavedName> names = names_of(parameter, *family, model.experts);
    if (names.empty()) return {};
    out.names.insert(out.names.end(), names.begin(), names.end());
  }
  out.config = config_of(model, step, *family);
  return out;
}

}  // namespace piper
