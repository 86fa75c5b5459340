#include "models/mixture.h"

#include <ATen/ATen.h>

#include "capture/record/annotate.h"

namespace piper {

using at::Tensor;

Dispatch::Dispatch(const ModelConfig& c, const TensorMaker& make)
    : norm(register_module("norm", std::make_shared<NormLayer>(c, c.hidden, make))),
      router(register_module("router", std::make_shared<Linear>(c.hidden, c.experts, false, make))) {
  if (has_router_bias(c)) bias = router->register_parameter("bias", make({c.experts}));
  if (c.shared_experts > 0)
    shared = std::make_unique<FeedForward>(*this, "shared_", c, c.shared_experts * c.moe_ffn, make);
}

Choices Dispatch::choose(const Tensor& tokens, const RouterForm& form) const {
  if (form.scores == RouterScores::Softmax) return piper::choose(router->forward(tokens), form, bias);
  const auto wide = at::promote_types(tokens.scalar_type(), at::kFloat);  // as DeepSeek-V3 computes it
  return piper::choose(at::linear(tokens.to(wide), router->weight.to(wide)), form, bias);
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
      form_(router_form(c)),
      dispatch_(owner.register_module("dispatch", std::make_shared<Dispatch>(c, make))),
      experts_(owner.register_module("experts", std::make_shared<Experts>(c, make))) {}

HiddenState Mixture::forward(const HiddenState& in) const {
  const Tensor h = dispatch_->norm->forward(in.x);
  Choices choices = dispatch_->choose(h.reshape({-1, config_.hidden}), form_);
  if (config_.dropless) return forward(in, h, sort_rows(std::move(choices)));
  return forward(in, h, route(std::move(choices), config_.capacity_factor));
}

template <class Routed>
void Mixture::count(HiddenState& out, const Routed& routed) const {
  const int64_t samples = out.x.size(0);
  const auto add = [](Tensor& sum, const Tensor& own) { sum = sum.defined() ? sum + own : own; };
  if (config_.expert_load) out.loads.push_back(shares(routed));
  if (config_.router_z_loss_coef > 0) add(out.squares, square_of_logsumexp(routed.choices, samples));
  if (config_.router_aux_loss_coef == 0) return;
  const Tensor chances = probabilities(routed.choices, form_);
  if (config_.router_aux_loss == BalanceLoss::PerLayer)
    return add(out.imbalance, imbalance(chances, shares(routed), samples));
  add(out.probabilities, means_by_sample(chances, samples));
  add(out.choices, choices_by_sample(routed.choices, samples));
}

Tensor joint_imbalance(const HiddenState& state, int64_t layers) {
  const Tensor chances = state.probabilities.mean(0), choices = state.choices.mean(0);
  return (chances * choices).sum() * (static_cast<double>(chances.size(0)) / static_cast<double>(layers * layers));
}

template <class Routed>
HiddenState Mixture::forward(const HiddenState& in, const Tensor& h, const Routed& routed) const {
  const Tensor tokens = h.reshape({-1, config_.hidden});
  HiddenState out = in;
  count(out, routed);
  Tensor shared;
  if (dispatch_->shared) shared = dispatch_->shared->forward(h);
  Tensor y = combine(experts_->forward(dispatch(tokens, routed), routed), routed).view_as(in.x);
  if (shared.defined()) y = y + shared;
  out.x = in.x + thinned(y, config_);
  return out;
}

}  // namespace piper
