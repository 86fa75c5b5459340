#include "model/analytic/parameter_counts.h"

#include "base/saturate.h"

namespace piper {
namespace {

int64_t linear(const ModelConfig& c, int64_t in, int64_t out) {
  return saturating_add(saturating_multiply(in, out), c.bias ? out : 0);
}

int64_t norm(const ModelConfig& c, int64_t width) {
  return c.norm == Norm::LayerNorm ? 2 * width : width;
}

int64_t feed_forward(const ModelConfig& c, int64_t width) {
  const int64_t up = linear(c, c.hidden, width), down = linear(c, width, c.hidden);
  return c.act == Activation::Swiglu ? 2 * up + down : up + down;
}

int64_t latent_attention(const ModelConfig& c) {
  const int64_t q = c.heads * (c.qk_nope_head_dim + c.qk_rope_head_dim);
  const int64_t queries =
      c.q_lora_rank == 0 ? linear(c, c.hidden, q)
                         : linear(c, c.hidden, c.q_lora_rank) + norm(c, c.q_lora_rank) + linear(c, c.q_lora_rank, q);
  return queries + linear(c, c.hidden, c.kv_lora_rank + c.qk_rope_head_dim) + norm(c, c.kv_lora_rank) +
         linear(c, c.kv_lora_rank, c.heads * (c.qk_nope_head_dim + c.v_head_dim)) +
         linear(c, c.heads * c.v_head_dim, c.hidden);
}

int64_t attention(const ModelConfig& c) {
  if (has_latent_attention(c.arch)) return latent_attention(c);
  const int64_t width = head_width(c), q = c.heads * width, kv = key_value_heads(c) * width;
  return linear(c, c.hidden, q) + 2 * linear(c, c.hidden, kv) + linear(c, q, c.hidden) +
         (c.qk_norm ? 2 * norm(c, width) : 0);
}

/// With `experts` of the experts counted.
int64_t count(const ModelConfig& c, int64_t experts) {
  const int64_t mixtures = has_experts(c.arch) ? c.layers - c.dense_layers : 0;
  int64_t total = saturating_multiply(c.vocab, c.tie_embeddings ? c.hidden : 2 * c.hidden);
  if (has_learned_positions(c.arch)) total += c.seq * c.hidden;
  if (c.arch != Architecture::Gpt) total += norm(c, c.hidden);
  total = saturating_add(total, saturating_multiply(c.layers, attention(c) + 2 * norm(c, c.hidden)));
  total = saturating_add(total, saturating_multiply(c.layers - mixtures, feed_forward(c, dense_width(c))));
  if (mixtures == 0) return total;
  const int64_t router = c.hidden * c.experts + (has_router_bias(c) ? c.experts : 0);
  const int64_t shared = c.shared_experts > 0 ? feed_forward(c, c.shared_experts * c.moe_ffn) : 0;
  const int64_t routed = saturating_multiply(experts, feed_forward(c, c.moe_ffn));
  return saturating_add(total, saturating_multiply(mixtures, saturating_add(router + shared, routed)));
}

}  // namespace

int64_t total_parameters(const ModelConfig& config) {
  return count(config, config.experts);
}
int64_t active_parameters(const ModelConfig& config) {
  return count(config, config.top_k);
}

}  // namespace piper
