#include "runtime/update_factored.h"

#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/invariant.h"

namespace piper {
namespace {

/// Of the numbers of a type, as torch.finfo says it.
double last_digit(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return std::numeric_limits<double>::epsilon();
    case DType::Float32:
      return std::numeric_limits<float>::epsilon();
    case DType::BFloat16:
      return 0.0078125;
    default:
      internal_error("only types that check_types accepts are updated");
  }
}

}  // namespace

FactoredSquares factored_squares(const at::Tensor& kept, const std::vector<int64_t>& sizes) {
  const std::vector<WholeState> states = whole_states(Optimizer::Adafactor, sizes);
  FactoredSquares out{kept.narrow(0, 0, states[0].count).view(states[0].sizes), {}};
  if (states.size() == 1) return out;
  out.rows = out.rows.unsqueeze(-1);
  out.columns = kept.narrow(0, states[0].count, states[1].count).view(states[1].sizes).unsqueeze(-2);
  return out;
}

void add_squares(const AdafactorSettings& settings, int64_t step, const at::Tensor& gradient,
                 const FactoredSquares& squares) {
  const double weight = std::pow(static_cast<double>(step), settings.beta2_decay);
  const auto add = [&](const at::Tensor& kept, const at::Tensor& now) {
    kept.copy_(kept.to(now.scalar_type()).lerp_(now, weight));
  };
  if (!squares.columns.defined()) return add(squares.rows, gradient.mul(gradient));
  for (const int64_t dim : {int64_t{-1}, int64_t{-2}})
    add(dim == -1 ? squares.rows : squares.columns,
        at::linalg_vector_norm(gradient, 2, at::IntArrayRef(dim), /*keepdim=*/true).square_().div_(gradient.size(dim)));
}

void divide_by_roots(const AdafactorSettings& settings, DType precise, const FactoredSquares& squares,
                     at::Tensor& gradient) {
  const double least = settings.epsilon.value_or(last_digit(precise));
  const c10::ScalarType type = gradient.scalar_type();
  at::Tensor estimate;
  if (squares.columns.defined()) {
    const at::Tensor rows = squares.rows.to(type);
    estimate = rows.matmul(squares.columns.to(type));
    estimate.div_(rows.mean({-2}, /*keepdim=*/true).clamp_min_(least));
  } else {
    estimate = squares.rows.to(type, /*non_blocking=*/false, /*copy=*/true);
  }
  gradient.mul_(estimate.clamp_min_(least * least).rsqrt_());
  const double largest_norm = std::sqrt(static_cast<double>(gradient.numel())) * settings.clip_threshold;
  gradient.div_(gradient.norm().div_(largest_norm).clamp_min_(1));  // stays on a GPU: nobody waits for the norm
}

double factored_rate(const OptimizerSettings& settings, int64_t step, int64_t elements, double parameter_squares) {
  const double root_mean_square = std::sqrt(parameter_squares / static_cast<double>(elements));
  const double rate = std::min(settings.learning_rate, 1 / std::sqrt(static_cast<double>(step)));
  return -std::max(settings.adafactor.least_rms, root_mean_square) * rate;
}

}  // namespace piper
