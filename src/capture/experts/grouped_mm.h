// Matrix products of rows in groups: each group with a matrix of its own.
//
// piper::grouped_mm(Tensor a, Tensor b, Tensor ends) -> Tensor, in two forms:
//   [rows, in] and [groups, in, out] -> [rows, out]: the rows of a group times its matrix
//   [in, rows] and [rows, out] -> [groups, in, out]: a product over the rows of each group; zeros where it has none
// A group ends in front of row ends[group] (int32) and begins where the one before it ends. Shapes do not depend on
// where that is. Rows behind the last group are zeros in the result of the first form, on a GPU what PyTorch leaves.
//
// On a GPU bfloat16 is PyTorch's own kernel, which reads `ends` there; where that refuses a width (rows that are no
// multiple of 16 bytes) or has no kernel (other types) it is a product for each group, and the host waits for `ends`.
// On a CPU it is a product for each group, as PyTorch's is.
#pragma once

#include <ATen/core/Tensor.h>

namespace piper {

/// Differentiable in a and b.
at::Tensor grouped_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends);

}  // namespace piper
