#include "models/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

namespace piper {
namespace {

using Json = nlohmann::ordered_json;

using Names = std::pair<std::string_view, std::string_view>;  // our own, that of transformers

/// Ends of names inside a layer, and names outside of them.
constexpr std::array in_llama_layer = {
    Names{"attention.norm.", "input_layernorm."},
    Names{"attention.q.", "self_attn.q_proj."},
    Names{"attention.k.", "self_attn.k_proj."},
    Names{"attention.v.", "self_attn.v_proj."},
    Names{"attention.q_norm.", "self_attn.q_norm."},
    Names{"attention.k_norm.", "self_attn.k_norm."},
    Names{"attention.out.", "self_attn.o_proj."},
    Names{"mlp.norm.", "post_attention_layernorm."},
    Names{"mlp.gate.", "mlp.gate_proj."},
    Names{"mlp.up.", "mlp.up_proj."},
    Names{"mlp.down.", "mlp.down_proj."},
};
constexpr std::array outside_llama = {
    Names{"embed.weight", "model.embed_tokens.weight"},
    Names{"head.norm.weight", "model.norm.weight"},
    Names{"head.weight", "lm_head.weight"},
};
constexpr std::array in_opt_layer = {
    Names{"attention.norm.", "self_attn_layer_norm."},
    Names{"attention.q.", "self_attn.q_proj."},
    Names{"attention.k.", "self_attn.k_proj."},
    Names{"attention.v.", "self_attn.v_proj."},
    Names{"attention.out.", "self_attn.out_proj."},
    Names{"mlp.norm.", "final_layer_norm."},
    Names{"mlp.up.", "fc1."},
    Names{"mlp.down.", "fc2."},
};
constexpr std::array outside_opt = {
    Names{"embed.weight", "model.decoder.embed_tokens.weight"},
    Names{"embed.positions", "model.decoder.embed_positions.weight"},
    Names{"head.weight", "lm_head.weight"},
};
constexpr int64_t unused_positions_of_opt = 2;  // its table begins with so many rows that stand for nothing

struct Family {
  Architecture arch;
  std::string_view model_type, architecture;
  std::string_view layers;  // what the names of all layers begin with
  std::span<const Names> in_layer, outside;
  std::string_view mixture = {};                   // where the router and the experts are
  std::string_view gate = {}, up = {}, down = {};  // of one expert
};
constexpr std::string_view of_llama = "model.layers.", of_opt = "model.decoder.layers.";
constexpr std::array families = {
    Family{Architecture::Gpt, "opt", "OPTForCausalLM", of_opt, in_opt_layer, outside_opt},
    Family{Architecture::Llama3, "llama", "LlamaForCausalLM", of_llama, in_llama_layer, outside_llama},
    Family{Architecture::Qwen3Dense, "qwen3", "Qwen3ForCausalLM", of_llama, in_llama_layer, outside_llama},
    Family{Architecture::Qwen3Moe, "qwen3_moe", "Qwen3MoeForCausalLM", of_llama, in_llama_layer, outside_llama, "mlp",
           "gate_proj", "up_proj", "down_proj"},
    Family{Architecture::Mixtral, "mixtral", "MixtralForCausalLM", of_llama, in_llama_layer, outside_llama,
           "block_sparse_moe", "w1", "w3", "w2"},
};
/// Whose routers score with a sigmoid, as DeepSeek-V3's.
constexpr Family glm4_moe = {Architecture::Qwen3Moe, "glm4_moe", "Glm4MoeForCausalLM", of_llama,  in_llama_layer,
                             outside_llama,          "mlp",      "gate_proj",          "up_proj", "down_proj"};

bool is_glm4_moe(const ModelConfig& c) {
  return c.arch == Architecture::Qwen3Moe && c.scoring_func == RouterScores::Sigmoid;
}

/// Whether transformers' router computes the same.
bool has_known_router(const ModelConfig& c) {
  if (is_glm4_moe(c)) return c.shared_experts > 0;  // always has some, and a bias
  if (c.shared_experts > 0 || c.n_group > 1 || c.routed_scaling_factor != 1 || has_router_bias(c)) return false;
  return c.norm_topk_prob || c.arch == Architecture::Qwen3Moe;
}

/// Whether transformers' model of the family computes the same.
bool is_of_family(const ModelConfig& c) {
  if (!is_glm4_moe(c) && c.qk_norm != usual_config(c.arch).qk_norm) return false;
  if (c.arch == Architecture::Gpt)
    return c.act == Activation::Gelu && c.norm == Norm::LayerNorm && key_value_heads(c) == c.heads &&
           head_width(c) * c.heads == c.hidden;
  if (c.act != Activation::Swiglu || c.norm != Norm::RmsNorm) return false;
  if (has_experts(c.arch) && !has_known_router(c)) return false;
  if (c.bias && c.arch != Architecture::Llama3) return false;  // of Mixtral none, of the others only attention's
  return c.dense_layers == 0 || c.arch != Architecture::Mixtral;
}

const Family* family_of(const ModelConfig& c) {
  if (!is_of_family(c)) return nullptr;
  if (is_glm4_moe(c)) return &glm4_moe;
  const auto found = std::ranges::find(families, c.arch, &Family::arch);
  return found != families.end() ? &*found : nullptr;
}

/// One name, or those of all experts.
std::vector<SavedName> names_of(const std::string& name, const Family& family, int64_t experts) {
  for (const auto& [own, theirs] : family.outside)
    if (name == own)
      return {{name, std::string(theirs), 0, 0, name == "embed.positions" ? unused_positions_of_opt : 0}};
  constexpr std::string_view layer = "layer.";
  if (!name.starts_with(layer)) return {};
  const size_t dot = name.find('.', layer.size());
  const std::string prefix = fmt::format("{}{}.", family.layers, name.substr(layer.size(), dot - layer.size()));
  const std::string rest = name.substr(dot + 1);
  for (const auto& [own, theirs] : family.in_layer)
    if (rest.starts_with(own)) return {{name, fmt::format("{}{}{}", prefix, theirs, rest.substr(own.size()))}};
  if (rest == "dispatch.norm.weight") return {{name, prefix + "post_attention_layernorm.weight"}};
  if (rest == "dispatch.router.weight") return {{name, fmt::format("{}{}.gate.weight", prefix, family.mixture)}};
  if (rest == "dispatch.router.bias")
    return {{name, fmt::format("{}{}.gate.e_score_correction_bias", prefix, family.mixture)}};
  if (constexpr std::string_view shared = "dispatch.shared_"; rest.starts_with(shared)) {
    const std::string part = rest.substr(shared.size());  // gate.weight
    const size_t end = part.find('.');
    return {{name, fmt::format("{}{}.shared_experts.{}_proj{}", prefix, family.mixture, part.substr(0, end),
                               part.substr(end))}};
  }
  const std::array<std::pair<std::string_view, std::string_view>, 3> of_expert = {
      {{"experts.gate.weight", family.gate}, {"experts.up.weight", family.up}, {"experts.down.weight", family.down}}};
  std::vector<SavedName> out;
  for (const auto& [own, theirs] : of_expert)
    for (int64_t e = 0; e < (rest == own ? experts : 0); ++e)
      out.push_back({name, fmt::format("{}{}.experts.{}.{}.weight", prefix, family.mixture, e, theirs), e, experts});
  return out;
}

/// OPT without the last norm is our gpt.
void add_opt(Json& out, const ModelConfig& c) {
  out["max_position_embeddings"] = c.seq;
  out["word_embed_proj_dim"] = c.hidden;
  out["ffn_dim"] = c.ffn;
  out["activation_function"] = "gelu";
  out["do_layer_norm_before"] = true;
  out["_remove_final_layer_norm"] = true;
  out["enable_bias"] = c.bias;
  out["layer_norm_elementwise_affine"] = true;
  out["pad_token_id"] = nullptr;  // every token is one
  out["dropout"] = out["attention_dropout"] = c.dropout ? c.dropout_rate : 0.0;
}

void add_llama(Json& out, const ModelConfig& c, const StepConfig& step) {
  out["num_key_value_heads"] = key_value_heads(c);
  out["head_dim"] = head_width(c);
  out["max_position_embeddings"] = std::max(c.seq, step.sequence);
  out["hidden_act"] = "silu";
  out["rms_norm_eps"] = c.norm_eps;
  const double theta = c.rope_theta > 0 ? c.rope_theta : 10'000;
  out["rope_theta"] = theta;  // of transformers 4
  out["rope_parameters"] = {{"rope_theta", theta}, {"rope_type", "default"}};
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
  if (is_glm4_moe(c)) {
    out["partial_rotary_factor"] = out["rope_parameters"]["partial_rotary_factor"] = 1.0;
    out["use_qk_norm"] = c.qk_norm;
    out["n_routed_experts"] = c.experts;
    out["n_shared_experts"] = c.shared_experts;
    out["moe_intermediate_size"] = c.moe_ffn;
    out["intermediate_size"] = c.dense_layers > 0 ? c.dense_ffn : c.moe_ffn;
    out["first_k_dense_replace"] = c.dense_layers;
    out["norm_topk_prob"] = c.norm_topk_prob;
    out["routed_scaling_factor"] = c.routed_scaling_factor;
    out["n_group"] = std::max<int64_t>(1, c.n_group);
    out["topk_group"] = std::max<int64_t>(1, c.topk_group);
    out["num_nextn_predict_layers"] = 0;
  } else if (c.arch == Architecture::Qwen3Moe) {
    out["num_experts"] = c.experts;
    out["moe_intermediate_size"] = c.moe_ffn;
    out["intermediate_size"] = c.dense_layers > 0 ? c.dense_ffn : c.moe_ffn;
    out["norm_topk_prob"] = c.norm_topk_prob;
    out["decoder_sparse_step"] = 1;
    out["mlp_only_layers"] = Json::array();
    for (int64_t layer = 0; layer < c.dense_layers; ++layer) out["mlp_only_layers"].push_back(layer);
  }
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
  out["tie_word_embeddings"] = c.tie_embeddings;
  if (c.arch == Architecture::Gpt)
    add_opt(out, c);
  else
    add_llama(out, c, step);
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
