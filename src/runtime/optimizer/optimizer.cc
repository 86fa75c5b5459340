#include "runtime/optimizer/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/invariant.h"
#include "runtime/optimizer/element_blocks.h"

namespace piper {
namespace {

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

  void operator()(Block<T>& w, const Block<T>& g, Block<T>* moments) const {
    Block<T>&m = moments[0], &v = moments[1];
    for (int i = 0; i < block_size; ++i) {
      m[i] += weight1_ * (g[i] - m[i]);
      v[i] = v[i] * beta2_ + weight2_ * g[i] * g[i];
      const T root = std::sqrt(v[i]) / root_correction_ + epsilon_;
      w[i] = w[i] * keep_ + rate_ * m[i] / root;
    }
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

  void operator()(Block<T>& w, const Block<T>& g, Block<T>*) const {
    for (int i = 0; i < block_size; ++i) w[i] -= rate_ * (g[i] + decay_ * w[i]);
  }

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

  void operator()(Block<T>& w, const Block<T>& g, Block<T>* moments) const {
    Block<T>& m = moments[0];
    for (int i = 0; i < block_size; ++i) {
      m[i] = m[i] * momentum_ + (g[i] + decay_ * w[i]);
      w[i] -= rate_ * m[i];
    }
  }

 private:
  T rate_, decay_, momentum_;
};

/// The parts of a range's memory.
struct Range {
  std::byte* weights;
  const std::byte* gradients;
  std::byte* moments[2];
  std::byte* master = nullptr;
  std::byte* master_gradients = nullptr;
};

Range range_of(const ElementTypes& types, Optimizer kind, std::byte* weights, const std::byte* gradients,
               std::byte* state, int64_t count) {
  Range range{weights, gradients, {}};
  const auto take = [&](DType dtype) { return std::exchange(state, state + count * bytes_of(dtype)); };
  for (int64_t m = 0; m < moments(kind); ++m) range.moments[m] = take(types.moments);
  if (types.master) range.master = take(*types.master);
  if (types.master_gradients) range.master_gradients = take(*types.master_gradients);
  return range;
}

template <class T, class Step>
void update_blocks(const Step& step, const ElementTypes& types, int64_t kept, double gradient_scale, const Range& range,
                   int64_t count) {
  const T scale = static_cast<T>(gradient_scale);
  Block<T> w{}, g{}, m[2] = {};  // beyond the end of the range: numbers left from before, which no one looks at
  for (int64_t begin = 0; begin < count; begin += block_size) {
    const int64_t end = std::min(begin + block_size, count);
    load(types.master.value_or(types.weights), range.master ? range.master : range.weights, begin, end, w);
    load(types.gradients, range.gradients, begin, end, g);
    for (int64_t k = 0; k < kept; ++k) load(types.moments, range.moments[k], begin, end, m[k]);
    for (T& x : g) x *= scale;
    if (range.master_gradients) {
      store(*types.master_gradients, g, range.master_gradients, begin, end);
      load(*types.master_gradients, range.master_gradients, begin, end, g);
    }
    step(w, g, m);
    for (int64_t k = 0; k < kept; ++k) store(types.moments, m[k], range.moments[k], begin, end);
    if (range.master) store(*types.master, w, range.master, begin, end);
    store(types.weights, w, range.weights, begin, end);
  }
}

template <class T>
void update_as(const OptimizerSettings& settings, const ElementTypes& types, int64_t step, double scale,
               const Range& range, int64_t count) {
  const int64_t kept = moments(settings.kind);
  switch (settings.kind) {
    case Optimizer::Sgd:
      return update_blocks<T>(SgdStep<T>(settings), types, kept, scale, range, count);
    case Optimizer::Momentum:
      return update_blocks<T>(MomentumStep<T>(settings), types, kept, scale, range, count);
    case Optimizer::AdamW:
      return update_blocks<T>(AdamWStep<T>(settings, step), types, kept, scale, range, count);
  }
}

Diagnostic unknown_type(std::string_view what, DType dtype) {
  return error(ErrorCode::E105, {}, fmt::format("{} of dtype {} cannot be updated", what, name(dtype)))
      .help("the optimiser computes with float64, float32 and bfloat16");
}

}  // namespace

ElementTypes element_types(const StepConfig& step, DType weights) {
  ElementTypes types;
  types.weights = weights;
  types.gradients = step.gradients;
  if (step.master && *step.master != weights) types.master = step.master;
  if (step.master_gradients && *step.master_gradients != step.gradients) types.master_gradients = step.master_gradients;
  const DType precise = step.master.value_or(DType::Float32);
  types.moments = bytes_of(weights) > bytes_of(precise) ? weights : precise;
  return types;
}

Checked check_types(const ElementTypes& types) {
  if (!has_kernels(types.weights)) return unknown_type("weights", types.weights);
  if (!has_kernels(types.moments)) return unknown_type("moments", types.moments);
  if (!has_kernels(types.gradients)) return unknown_type("gradients", types.gradients);
  if (types.master_gradients && !has_kernels(*types.master_gradients))
    return unknown_type("master gradients", *types.master_gradients);
  if (!types.master) return Ok{};
  if (!has_kernels(*types.master)) return unknown_type("a master copy", *types.master);
  if (bytes_of(*types.master) <= bytes_of(types.weights))
    return error(ErrorCode::E105, {},
                 fmt::format("a {} master copy of {} weights loses digits", name(*types.master), name(types.weights)))
        .help("the master copy must be wider than the weights; without one, write master = \"none\"");
  return Ok{};
}

int64_t state_bytes(const ElementTypes& types, Optimizer kind, int64_t count) {
  int64_t bytes = moments(kind) * bytes_of(types.moments);
  if (types.master) bytes += bytes_of(*types.master);
  if (types.master_gradients) bytes += bytes_of(*types.master_gradients);
  return bytes * count;
}

void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                      int64_t count) {
  std::fill_n(state, state_bytes(types, kind, count), std::byte{});
  if (!types.master) return;
  const Range range = range_of(types, kind, nullptr, nullptr, state, count);
  Block<double> w;
  for (int64_t begin = 0; begin < count; begin += block_size) {
    const int64_t end = std::min(begin + block_size, count);
    load(types.weights, weights, begin, end, w);
    store(*types.master, w, range.master, begin, end);
  }
}

void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step, double gradient_scale,
            std::byte* weights, const std::byte* gradients, std::byte* state, int64_t count) {
  invariant(step >= 1, "the steps of an optimiser count from 1");
  const Range range = range_of(types, settings.kind, weights, gradients, state, count);
  if (types.moments == DType::Float64)
    update_as<double>(settings, types, step, gradient_scale, range, count);
  else
    update_as<float>(settings, types, step, gradient_scale, range, count);
}

}  // namespace piper
