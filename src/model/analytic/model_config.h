// A transformer in numbers: everything an analytic model is computed from. Names as in published configurations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace piper {

enum class Architecture { Gpt, Llama3, Qwen3Dense, Qwen3Moe, Mixtral, DeepSeekV3, Reference, ReferenceMoe, TwoBranch };
/// gpt, llama3, qwen3-dense, qwen3-moe, mixtral, deepseek_v3, reference, reference-moe, two-branch
std::string_view name(Architecture arch);
std::optional<Architecture> architecture_named(std::string_view text);
std::vector<std::string> architecture_names();
/// Layers (after the first `dense_layers`) route tokens to experts.
bool has_experts(Architecture arch);
/// Queries, keys and values pass through low-rank projections.
bool has_latent_attention(Architecture arch);
/// Positions are a table with `seq` rows, added to the tokens; otherwise queries and keys are rotated.
bool has_learned_positions(Architecture arch);
/// All but its sizes is laid down, because its losses are published.
bool is_reference(Architecture arch);

enum class Activation { Swiglu, Gelu };
enum class Norm { RmsNorm, LayerNorm };
/// What a router makes of its logits.
enum class RouterScores { Softmax, Sigmoid };
/// Over what experts are to be used evenly.
enum class BalanceLoss {
  PerLayer,  // in every layer; the sum of the losses of layers
  Joint,     // in all layers together, as transformers' load_balancing_loss_func
};

/// What the names of metrics of `expert_load` begin with; behind it layer and expert.
constexpr std::string_view expert_load_metric = "expert_load.";

/// Plain data; 0 means "not given" where the comment says so.
struct ModelConfig {
  std::string name;
  Architecture arch = Architecture::Llama3;

  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t vocab = 0;
  int64_t seq = 0;             // default tokens of a sample, and the number of learned positions; 0: not given
  int64_t encoder_layers = 0;  // layers of each of the two encoders of two-branch; `layers` are its decoder's

  int64_t heads = 0;
  int64_t kv_heads = 0;     // 0: as many as heads
  int64_t head_dim = 0;     // 0: hidden / heads
  int64_t q_lora_rank = 0;  // latent attention; 0: queries are projected directly
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;

  int64_t ffn = 0;           // width of the feed-forward layer of a dense architecture
  int64_t dense_layers = 0;  // first layers of a mixture that are dense
  int64_t dense_ffn = 0;     // their width
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t moe_ffn = 0;  // width of one expert
  int64_t shared_experts = 0;
  int64_t n_group = 0;     // routing is restricted to topk_group of n_group groups of experts: changes no size
  int64_t topk_group = 0;  // see n_group
  RouterScores scoring_func = RouterScores::Softmax;  // changes no size but that of the router's bias
  bool norm_topk_prob = true;                         // the weights of a token's choices add up to one
  double routed_scaling_factor = 1;                   // of them, in the end
  double router_bias_rate = 0;          // how far the router's bias for the choice moves in a step; changes no size
  double capacity_factor = 1.0;         // slots of an expert, relative to an even distribution of tokens
  bool dropless = false;                // experts have as many rows as chose them instead of slots
  double router_aux_loss_coef = 0.001;  // weight of the load-balance loss when trained; changes no size
  BalanceLoss router_aux_loss = BalanceLoss::PerLayer;
  double router_z_loss_coef = 0;  // weight of the mean square of the logsumexp of logits; changes no size
  bool expert_load = false;       // metrics say how many tokens chose which expert

  bool tie_embeddings = false;
  bool qk_norm = false;
  bool bias = false;
  bool dropout = false;
  double dropout_rate = 0.1;    // where there is dropout; changes no size
  bool flash_attention = true;  // attention scores are never stored
  Activation act = Activation::Swiglu;
  Norm norm = Norm::RmsNorm;
  double rope_theta = 0;   // changes no size
  double norm_eps = 1e-6;  // added to the variance by RMS norms; changes no size

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// An empty configuration with what is usual for the architecture: act, norm, bias, dropout, flash_attention, …
ModelConfig usual_config(Architecture arch);
/// Fills in what follows from the sizes for the architecture, where it is not given.
void complete(ModelConfig& config);

/// The values that follow from others if not given.
int64_t key_value_heads(const ModelConfig& config);
int64_t head_width(const ModelConfig& config);
/// Width of the feed-forward part of dense layers.
int64_t dense_width(const ModelConfig& config);
/// Whether layer `index` routes tokens to experts.
bool is_mixture_layer(const ModelConfig& config, int64_t index);
/// The router has a bias for the choice of experts, but not for their weights.
bool has_router_bias(const ModelConfig& config);

}  // namespace piper
