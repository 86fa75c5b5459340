// Muon: the step of a whole matrix, as torch.optim.Muon takes it.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/optimizer/optimizer.h"

namespace piper {

/// The direction with its singular values moved near 1, by `steps` Newton-Schulz iterations. They are computed in
/// bfloat16 as in PyTorch, or in float64 if the optimizer computes in float64.
at::Tensor orthogonal(const at::Tensor& direction, int64_t steps, DType optimizer_computes_in);

/// The learning rate of a matrix of this shape.
double muon_rate(const OptimizerSettings& settings, int64_t rows, int64_t columns);

}  // namespace piper
