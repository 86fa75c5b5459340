#include "models/mixture.h"

#include <ATen/ATen.h>

#include "capture/record/annotate.h"

namespace piper {

using at::Tensor;

Dispatch::Dispatch(const ModelConfig& c, const TensorMaker& make)
    : norm(register_module("norm", std::make_shared<NormLayer>(c, c.hidden, make))),
      router(register_module("router", std::make_shared<Linear>(c.hidden, c.experts, false, make))) {
  if (c.shared_experts > 0)
    shared = std::make_unique<FeedForward>(*this, "shared_", c, c.shared_experts * c.moe_ffn, make);
}

Experts::Experts(const ModelConfig& c, const TensorMaker& make) : experts_(c.experts) {
  const auto linear = [&](int64_t in, int64_t out) {
    return std::make_shared<ExpertLinear>(c.experts, in, out, c.bias, make);
  };
  if (c.act == Activation::Swiglu) gate_ = register_module("gate", linear(c.hidden, c.moe_ffn));
  up_ = register_module("up", linear(c.hidden, c.moe_ffn));
  down_ = register_module("down", linear(c.moe_ffn, c.hidden));
}

template <class Routed>
Tensor Experts::forward(const Tensor& x, const Routed& routed) const {
  const annotate scope("experts", {.experts = experts_});
  const auto linear = [&](const ExpertLinear& by, const Tensor& of) { return by.forward(of, routed); };
  const Tensor h = gate_ ? at::silu(linear(*gate_, x)) * linear(*up_, x) : at::gelu(linear(*up_, x));
  return linear(*down_, h);
}

Mixture::Mixture(torch::nn::Module& owner, const ModelConfig& c, const TensorMaker& make)
    : config_(c),
      dispatch_(owner.register_module("dispatch", std::make_shared<Dispatch>(c, make))),
      experts_(owner.register_module("experts", std::make_shared<Experts>(c, make))) {}

HiddenState Mixture::forward(const HiddenState& in) const {
  const Tensor h = dispatch_->norm->forward(in.x);
  const Tensor logits = dispatch_->router->forward(h.reshape({-1, config_.hidden}));
  if (config_.dropless) return forward(in, h, sort_rows(logits, config_.top_k));
  return forward(in, h, route(logits, config_.top_k, config_.capacity_factor));
}

template <class Routed>
HiddenState Mixture::forward(const HiddenState& in, const Tensor& h, const Routed& routed) const {
  const Tensor tokens = h.reshape({-1, config_.hidden});
  HiddenState out = in;
  if (config_.router_aux_loss_coef > 0) {
    const Tensor own = imbalance(routed.choices.probabilities, shares(routed), in.x.size(0));
    out.imbalance = in.imbalance.defined() ? in.imbalance + own : own;
  }
  Tensor shared;
  if (dispatch_->shared) shared = dispatch_->shared->forward(h);
  Tensor y = combine(experts_->forward(dispatch(tokens, routed), routed), routed).view_as(in.x);
  if (shared.defined()) y = y + shared;
  out.x = in.x + thinned(y, config_);
  return out;
}

}  // namespace piper
