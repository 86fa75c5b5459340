// The feed-forward part of a mixture-of-experts layer.
#pragma once

#include "models/layers.h"
#include "models/routing.h"

namespace piper {

/// Norm, router, tokens into slots or sorted rows, shared experts: before the experts; parameters `dispatch.*`.
struct Dispatch : torch::nn::Module {
  Dispatch(const ModelConfig& config, const TensorMaker& make);
  /// What the router says of each of the tokens.
  Choices choose(const at::Tensor& tokens, const RouterForm& form) const;
  std::shared_ptr<NormLayer> norm;
  std::shared_ptr<Linear> router;
  at::Tensor bias;  // `router.bias`, if the choice has one
  std::unique_ptr<FeedForward> shared;
};

/// The names of biases of routers, as a pattern.
constexpr const char* router_biases = "*.dispatch.router.bias";

/// Scope `experts`.
struct Experts : torch::nn::Module {
  Experts(const ModelConfig& config, const TensorMaker& make);
  /// On [experts, slots, hidden] only, so that it can be sharded; or on [rows, hidden].
  template <class Routed>
  at::Tensor forward(const at::Tensor& x, const Routed& routed) const;

 private:
  int64_t experts_;
  std::shared_ptr<ExpertLinear> gate_, up_, down_;
};

/// What flows from layer to layer: activations and, by sample, sums over all layers so far. What no layer has counted
/// is not defined.
struct HiddenState {
  at::Tensor x;
  at::Tensor imbalance;               // [samples]
  at::Tensor probabilities, choices;  // [samples, experts]: where the balance of all layers together counts
  at::Tensor squares;                 // [samples]: of the logsumexp of routers
  std::vector<at::Tensor> loads;      // of each mixture, if they are asked for: the part of all choices of each expert
};

/// How unevenly the experts of all layers together are used, as transformers' load_balancing_loss_func: `top_k` if they
/// are used evenly. `layers`: mixtures.
at::Tensor joint_imbalance(const HiddenState& state, int64_t layers);

struct Mixture {
  /// Its layers belong to `owner`.
  Mixture(torch::nn::Module& owner, const ModelConfig& config, const TensorMaker& make);
  HiddenState forward(const HiddenState& in) const;

 private:
  template <class Routed>
  HiddenState forward(const HiddenState& in, const at::Tensor& h, const Routed& routed) const;
  template <class Routed>
  void count(HiddenState& out, const Routed& routed) const;

  ModelConfig config_;
  RouterForm form_;
  std::shared_ptr<Dispatch> dispatch_;
  std::shared_ptr<Experts> experts_;
};

}  // namespace piper
