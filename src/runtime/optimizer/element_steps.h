// What an optimiser does to one element: the same lines for processors and for GPUs, so that both give the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/on_both.h"
#include "runtime/optimizer/optimizer.h"

namespace piper {

/// torch.optim.AdamW: decoupled decay; moments corrected for their start at 0; epsilon outside of the root.
template <class T>
class AdamWStep {
 public:
  AdamWStep(const OptimizerSettings& s, int64_t step)
      : keep_(static_cast<T>(1 - s.learning_rate * s.weight_decay)),
        weight1_(static_cast<T>(1 - s.beta1)),
        beta2_(static_cast<T>(s.beta2)),
        weight2_(static_cast<T>(1 - s.beta2)),
        root_correction_(static_cast<T>(std::sqrt(1 - std::pow(s.beta2, static_cast<double>(step))))),
        epsilon_(static_cast<T>(s.epsilon)),
        rate_(static_cast<T>(-s.learning_rate / (1 - std::pow(s.beta1, static_cast<double>(step))))) {}

  PIPER_ON_BOTH void operator()(T& w, T g, T& m, T& v) const {
    m += weight1_ * (g - m);
    v = v * beta2_ + weight2_ * g * g;
    const T root = std::sqrt(v) / root_correction_ + epsilon_;
    w = w * keep_ + rate_ * m / root;
  }

 private:
  T keep_, weight1_, beta2_, weight2_, root_correction_, epsilon_, rate_;
};

/// torch.optim.SGD, dampening 0, not Nesterov.
template <class T>
class SgdStep {
 public:
  explicit SgdStep(const OptimizerSettings& s)
      : rate_(static_cast<T>(s.learning_rate)), decay_(static_cast<T>(s.weight_decay)) {}

  PIPER_ON_BOTH void operator()(T& w, T g, T&, T&) const { w -= rate_ * (g + decay_ * w); }

 private:
  T rate_, decay_;
};

/// The same with momentum, which starts at 0: after the first step it is the gradient, as in torch.
template <class T>
class MomentumStep {
 public:
  explicit MomentumStep(const OptimizerSettings& s)
      : rate_(static_cast<T>(s.learning_rate)),
        decay_(static_cast<T>(s.weight_decay)),
        momentum_(static_cast<T>(s.momentum)) {}

  PIPER_ON_BOTH void operator()(T& w, T g, T& m, T&) const {
    m = m * momentum_ + (g + decay_ * w);
    w -= rate_ * m;
  }

 private:
  T rate_, decay_, momentum_;
};

/// Calls `use` with the step of this optimiser.
template <class T, class Use>
void with_step(const OptimizerSettings& settings, int64_t step, const Use& use) {
  switch (settings.kind) {
    case Optimizer::Sgd:
      return use(SgdStep<T>(settings));
    case Optimizer::Momentum:
      return use(MomentumStep<T>(settings));
    case Optimizer::AdamW:
      return use(AdamWStep<T>(settings, step));
  }
}

/// Where the parts of a range lie.
struct ElementPlaces {
  std::byte* weights;
  const std::byte* gradients;
  std::byte* moments[2];
  std::byte* master = nullptr;
  std::byte* master_gradients = nullptr;
};
ElementPlaces places_of(const ElementTypes& types, Optimizer kind, std::byte* weights, const std::byte* gradients,
                        std::byte* state, int64_t count);

}  // namespace piper
