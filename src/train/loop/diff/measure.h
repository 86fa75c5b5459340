// How far two tensors are apart, and how far they may be.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace piper {

struct Measure {
  double largest = 0;     // |a - b|, of all elements
  double difference = 0;  // norm of a - b; infinite where only one of them is finite
  double norm = 0;        // of b
  double rms_a = 0, rms_b = 0;

  double relative() const;  // to the norm
};

/// Of the same number of elements. What is not finite in both, in the same way, is equal.
Measure measure(const at::Tensor& a, const at::Tensor& b);

/// What may differ, relative to the norm: sums of the same numbers in another order. `given`: by the user, for all
/// numbers that can be rounded.
double tolerance_of(c10::ScalarType type, std::optional<double> given);
/// Half a unit in the last place of 1.
double rounding_of(c10::ScalarType type);

bool all_finite(const at::Tensor& tensor);

}  // namespace piper
