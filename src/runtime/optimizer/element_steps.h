// What an optimizer does to one element: the same lines for CPUs and GPUs, so that both give the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/on_both.h"
#include "runtime/optimizer/optimizer.h"

namespace piper {

/// What is done to a gradient first.
template <class T>
class ScaleStep {
 public:
  explicit ScaleStep(const GradientScale& scale)
      : factor_(static_cast<T>(scale.factor)),
        largest_(static_cast<T>(scale.largest.value_or(0))),
        cuts_(scale.largest.has_value()) {}

  PIPER_ON_BOTH T operator()(T g) const {
    g *= factor_;
    if (!cuts_) return g;
    return g > largest_ ? largest_ : g < -largest_ ? -largest_ : g;
  }

 private:
  T factor_, largest_;
  bool cuts_;
};

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

/// torch.optim.SGD without momentum.
template <class T>
class SgdStep {
 public:
  explicit SgdStep(const OptimizerSettings& s)
      : rate_(static_cast<T>(s.learning_rate)), decay_(static_cast<T>(s.weight_decay)) {}

  PIPER_ON_BOTH void operator()(T& w, T g, T&, T&) const { w -= rate_ * (g + decay_ * w); }

 private:
  T rate_, decay_;
};

/// The same with momentum, dampening 0. It starts at 0: after the first step it is the gradient, as in torch.
template <class T>
class MomentumStep {
 public:
  explicit MomentumStep(const OptimizerSettings& s)
      : rate_(static_cast<T>(s.learning_rate)),
        decay_(static_cast<T>(s.weight_decay)),
        momentum_(static_cast<T>(s.momentum)),
        nesterov_(s.nesterov) {}

  PIPER_ON_BOTH void operator()(T& w, T g, T& m, T&) const {
    g += decay_ * w;
    m = m * momentum_ + g;
    w -= rate_ * (nesterov_ ? g + momentum_ * m : m);
  }

 private:
  T rate_, decay_, momentum_;
  bool nesterov_;
};

/// Lion: the sign of a mean of gradients, of which another mean is kept; decoupled decay.
template <class T>
class LionStep {
 public:
  explicit LionStep(const OptimizerSettings& s)
      : keep_(static_cast<T>(1 - s.learning_rate * s.weight_decay)),
        weight1_(static_cast<T>(1 - s.beta1)),
        weight2_(static_cast<T>(1 - s.beta2)),
        rate_(static_cast<T>(s.learning_rate)) {}

  PIPER_ON_BOTH void operator()(T& w, T g, T& m, T&) const {
    const T mean = m + weight1_ * (g - m);
    const T sign = static_cast<T>((mean > 0) - (mean < 0));
    w = w * keep_ - rate_ * sign;
    m += weight2_ * (g - m);
  }

 private:
  T keep_, weight1_, weight2_, rate_;
};

/// The sign of the gradient alone, whatever optimizer the other parameters have.
template <class T>
class SignStep {
 public:
  explicit SignStep(double rate) : rate_(static_cast<T>(rate)) {}

  PIPER_ON_BOTH void operator()(T& w, T g, T&, T&) const { w -= rate_ * static_cast<T>((g > 0) - (g < 0)); }

 private:
  T rate_;
};

/// Calls `use` with the step of this optimizer.
template <class T, class Use>
void with_step(const OptimizerSettings& settings, int64_t step, const Use& use) {
  if (settings.sign_rate) return use(SignStep<T>(*settings.sign_rate));
  switch (settings.kind) {
    case Optimizer::Sgd:
      return use(SgdStep<T>(settings));
    case Optimizer::Momentum:
      return use(MomentumStep<T>(settings));
    case Optimizer::AdamW:
      return use(AdamWStep<T>(settings, step));
    case Optimizer::Lion:
      return use(LionStep<T>(settings));
    case Optimizer::Muon:
    case Optimizer::Adafactor:
      break;  // look at whole parameters: runtime/update_matrix.h, runtime/update_factored.h
  }
}

/// Where the parts of a range lie.
struct ElementPlaces {
  std::byte* weights;
  const std::byte* gradients;
  std::byte* moments[2];
  std::byte* master = nullptr;
  std::byte* master_gradients = nullptr;
  std::byte* ema = nullptr;
};
ElementPlaces places_of(const ElementTypes& types, Optimizer kind, std::byte* weights, const std::byte* gradients,
                        std::byte* state, int64_t count);
/// The same from an element on.
ElementPlaces places_from(ElementPlaces at, const ElementTypes& types, int64_t first);

}  // namespace piper
