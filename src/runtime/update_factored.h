// Adafactor: the step of a whole parameter, as torch.optim.Adafactor takes it.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/whole_state.h"
#include "runtime/optimizer/optimizer.h"

namespace piper {

/// What is kept of a parameter's second moments: of a vector all (`rows`), else means of rows and of columns.
struct FactoredSquares {
  at::Tensor rows, columns;  // [..., r, 1], [..., 1, c]
};
/// A view of flat state (model/whole_state.h).
FactoredSquares factored_squares(const at::Tensor& kept, const std::vector<int64_t>& sizes);

/// Adds the squares of a gradient, in update `step` from 1 on.
void add_squares(const AdafactorSettings& settings, int64_t step, const at::Tensor& gradient,
                 const FactoredSquares& squares);

/// Divides the gradient by the square roots of its second moments, and clips it, in place. `precise`: the dtype of the
/// weights.
void divide_by_roots(const AdafactorSettings& settings, DType precise, const FactoredSquares& squares,
                     at::Tensor& gradient);

/// The factor of that for a parameter of this size: the learning rate, relative to the root mean square of the
/// parameter.
double factored_rate(const OptimizerSettings& settings, int64_t step, int64_t elements, double parameter_squares);

}  // namespace piper
