// The feed-forward part of a mixture-of-experts layer.
#pragma once

#include "models/layers.h"
#include "models/routing.h"

namespace piper {

/// Norm, router, tokens into slots or sorted rows, shared experts: before the experts; parameters `dispatch.*`.
struct Dispatch : torch::nn::Module {
  Dispatch(const ModelConfig& config, const TensorMaker& make);
  std::shared_ptr<NormLayer> norm;
  std::shared_ptr<Linear> router;
  std::unique_ptr<FeedForward> shared;
};

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

/// What flows from layer to layer.
struct HiddenState {
  at::Tensor x;
  at::Tensor imbalance;  // by sample, of all layers so far; not defined before the first that counts it
};

struct Mixture {
  /// Its layers belong to `owner`.
  Mixture(torch::nn::Module& owner, const ModelConfig& config, const TensorMaker& make);
  HiddenState forward(const HiddenState& in) const;

 private:
  template <class Routed>
  HiddenState forward(const HiddenState& in, const at::Tensor& h, const Routed& routed) const;

  ModelConfig config_;
  std::shared_ptr<Dispatch> dispatch_;
  std::shared_ptr<Experts> experts_;
};

}  // namespace piper
