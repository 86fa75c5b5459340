#include "models/layers.h"

#include <ATen/ATen.h>

#include <cmath>

#include "capture/experts/grouped_mm.h"
#include "capture/record/annotate.h"
#include "models/initial_values.h"

namespace piper {

using at::Tensor;

Linear::Linear(int64_t in, int64_t out, bool with_bias, const TensorMaker& make)
    : weight(register_parameter("weight", make({out, in}))) {
  if (with_bias) bias = register_parameter("bias", make({out}));
}
Tensor Linear::forward(const Tensor& x) const {
  return at::linear(x, weight, bias);
}

ExpertLinear::ExpertLinear(int64_t experts, int64_t in, int64_t out, bool with_bias, const TensorMaker& make)
    : weight(register_parameter("weight", make({experts, out, in}))) {
  if (with_bias) bias = register_parameter("bias", make({experts, out}));
}
Tensor ExpertLinear::forward(const Tensor& x, const SlotRouting&) const {
  const Tensor turned = weight.transpose(1, 2);
  return bias.defined() ? at::baddbmm(bias.unsqueeze(1), x, turned) : at::bmm(x, turned);
}

Tensor ExpertLinear::forward(const Tensor& x, const SortedRows& rows) const {
  const Tensor y = grouped_mm(x, weight.transpose(1, 2), rows.ends);
  if (!bias.defined()) return y;
  const Tensor ones = at::ones({x.size(0), 1}, x.options());  // a product: rows need not know their expert by number
  return y + grouped_mm(ones, bias.unsqueeze(1), rows.ends);
}

NormLayer::NormLayer(const ModelConfig& c, int64_t width, const TensorMaker& make)
    : kind(c.norm), epsilon(c.norm_eps), target(make.target), weight(register_parameter("weight", make({width}))) {
  if (kind == Norm::LayerNorm) bias = register_parameter("bias", make({width}));
}
Tensor NormLayer::forward(const Tensor& x) const {
  if (kind == Norm::LayerNorm) return at::layer_norm(x, {x.size(-1)}, weight, bias, 1e-5);
  return rms_norm(x, weight, epsilon, target);
}

Rotation::Rotation(int64_t sequence, int64_t width, const TensorMaker& make)
    : cos(register_buffer("cos", make({sequence, width / 2}))),
      sin(register_buffer("sin", make({sequence, width / 2}))) {}
Tensor Rotation::apply(const Tensor& x) const {
  const Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1);
  const std::vector<Tensor> halves = x.chunk(2, -1);
  return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
}

Attention::Attention(const ModelConfig& c, const TensorMaker& make) : config_(c), target_(make.target) {
  const int64_t width = head_width(c), queries = c.heads * width, keys = key_value_heads(c) * width;
  norm_ = register_module("norm", std::make_shared<NormLayer>(c, c.hidden, make));
  q_ = register_module("q", std::make_shared<Linear>(c.hidden, queries, c.bias, make));
  k_ = register_module("k", std::make_shared<Linear>(c.hidden, keys, c.bias, make));
  v_ = register_module("v", std::make_shared<Linear>(c.hidden, keys, c.bias, make));
  if (c.qk_norm) {
    q_norm_ = register_module("q_norm", std::make_shared<NormLayer>(c, width, make));
    k_norm_ = register_module("k_norm", std::make_shared<NormLayer>(c, width, make));
  }
  out_ = register_module("out", std::make_shared<Linear>(queries, c.hidden, c.bias, make));
}

Tensor Attention::project(const Linear& linear, const Tensor& x, int64_t heads) const {
  return linear.forward(x).view({x.size(0), x.size(1), heads, head_width(config_)});
}

Tensor Attention::mix(const Tensor& q, const Tensor& k, const Tensor& v, Mask mask, const Tensor& places) const {
  const Tensor queries = q.transpose(1, 2), keys = k.transpose(1, 2), values = v.transpose(1, 2);
  if (config_.flash_attention && !places.defined()) return attend(queries, keys, values, mask, target_);
  return attend_with_scores(queries, keys, values, mask, config_.dropout ? config_.dropout_rate : 0, places);
}

Tensor Attention::out(const Tensor& x, const Tensor& mixed) const {
  return x + thinned(out_->forward(mixed.transpose(1, 2).reshape({x.size(0), x.size(1), -1})), config_);
}

Tensor Attention::forward(const Tensor& x, const Rotation* rotation, Mask mask, const Tensor& places) const {
  const annotate scope("attention");
  const Tensor h = norm_->forward(x);
  Tensor q = project(*q_, h, config_.heads), k = project(*k_, h, key_value_heads(config_));
  const Tensor v = project(*v_, h, key_value_heads(config_));
  if (q_norm_) q = q_norm_->forward(q), k = k_norm_->forward(k);
  if (rotation) q = rotation->apply(q), k = rotation->apply(k);
  return out(x, mix(q, k, v, mask, places));
}

Tensor Attention::forward_to(const Tensor& x, const Tensor& memory) const {
  const annotate scope("cross");
  Tensor q = project(*q_, norm_->forward(x), config_.heads), k = project(*k_, memory, key_value_heads(config_));
  const Tensor v = project(*v_, memory, key_value_heads(config_));
  if (q_norm_) q = q_norm_->forward(q), k = k_norm_->forward(k);
  return out(x, mix(q, k, v, Mask::None, {}));
}

FeedForward::FeedForward(torch::nn::Module& owner, const std::string& prefix, const ModelConfig& c, int64_t width,
                         const TensorMaker& make) {
  if (c.act == Activation::Swiglu)
    gate = owner.register_module(prefix + "gate", std::make_shared<Linear>(c.hidden, width, c.bias, make));
  up = owner.register_module(prefix + "up", std::make_shared<Linear>(c.hidden, width, c.bias, make));
  down = owner.register_module(prefix + "down", std::make_shared<Linear>(width, c.hidden, c.bias, make));
}
Tensor FeedForward::forward(const Tensor& x) const {
  const Tensor h = gate ? at::silu(gate->forward(x)) * up->forward(x) : at::gelu(up->forward(x));
  return down->forward(h);
}

Mlp::Mlp(const ModelConfig& c, int64_t width, const TensorMaker& make)
    : config_(c),
      norm_(register_module("norm", std::make_shared<NormLayer>(c, c.hidden, make))),
      feed_forward_(*this, "", c, width, make) {}
Tensor Mlp::forward(const Tensor& x) const {
  return x + thinned(feed_forward_.forward(norm_->forward(x)), config_);
}

Embedding::Embedding(const ModelConfig& c, const TensorMaker& make)
    : weight(register_parameter("weight", make({c.vocab, c.hidden}))), config_(c) {
  if (has_learned_positions(c.arch)) positions_ = register_parameter("positions", make({c.seq, c.hidden}));
}
Tensor Embedding::forward(const Tensor& tokens, const Tensor& places) const {
  const annotate scope("embed");
  const Tensor x = at::embedding(weight, tokens);
  if (!positions_.defined()) return thinned(x, config_);
  return thinned(x + (places.defined() ? at::embedding(positions_, places) : positions_.narrow(0, 0, tokens.size(1))),
                 config_);
}

Head::Head(const ModelConfig& c, const TensorMaker& make) {
  if (c.arch != Architecture::Gpt) norm_ = register_module("norm", std::make_shared<NormLayer>(c, c.hidden, make));
  if (!c.tie_embeddings) weight_ = register_parameter("weight", make({c.vocab, c.hidden}));
}
Tensor Head::norm(const Tensor& x) const {
  return norm_ ? norm_->forward(x) : x;
}
Tensor Head::project(const Tensor& x, const Tensor& table) const {
  return at::linear(x, weight_.defined() ? weight_ : table);
}

Tensor thinned(const Tensor& x, const ModelConfig& config) {
  return config.dropout && config.dropout_rate > 0 ? at::dropout(x, config.dropout_rate, true) : x;
}

void initialize_by_name(uint64_t seed, const std::string& name, double rope_theta, int64_t residuals, Tensor& whole) {
  const at::NoGradGuard no_gradient;
  if (name.ends_with("rope.cos")) return fill_rotation(whole, rope_theta, RotationPart::Cos);
  if (name.ends_with("rope.sin")) return fill_rotation(whole, rope_theta, RotationPart::Sin);
  if (name.ends_with("norm.weight")) return void(whole.fill_(1));
  if (name.ends_with(".bias")) return void(whole.fill_(0));
  constexpr double deviation = 0.02;
  const bool before_residual = name.ends_with("out.weight") || name.ends_with("down.weight");
  fill_normal(whole, seed, name, before_residual ? deviation / std::sqrt(static_cast<double>(residuals)) : deviation);
}

}  // namespace piper
