#include "runtime/update_matrix.h"

#include <ATen/ops/addmm.h>

#include <algorithm>
#include <cmath>

namespace piper {

at::Tensor orthogonal(const at::Tensor& direction, int64_t steps, DType optimizer_computes_in) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;  // Keller Jordan's, as in PyTorch
  constexpr double least_norm = 1e-7;
  const bool tall = direction.size(0) > direction.size(1);
  at::Tensor x = direction.to(optimizer_computes_in == DType::Float64 ? at::kDouble : at::kBFloat16,
                              /*non_blocking=*/false, /*copy=*/true);
  if (tall) x = x.t();
  x.div_(x.norm().clamp_min(least_norm));
  for (int64_t step = 0; step < steps; ++step) {
    const at::Tensor gram = x.mm(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
  }
  return tall ? x.t() : x;
}

double muon_rate(const OptimizerSettings& settings, int64_t rows, int64_t columns) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  const double factor =
      settings.muon_rate == MuonRate::Ratio ? std::sqrt(std::max(1.0, r / c)) : 0.2 * std::sqrt(std::max(r, c));
  return settings.learning_rate * factor;
}

}  // namespace piper
