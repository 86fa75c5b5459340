// Numbers and types that the tests of optimizers share.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "base/bfloat.h"
#include "runtime/optimizer/optimizer.h"

namespace piper {

using Bytes = std::vector<std::byte>;

inline Bytes bytes_from(DType dtype, const std::vector<double>& numbers) {
  Bytes out(numbers.size() * static_cast<size_t>(bytes_of(dtype)));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto put = [&](auto x) { std::memcpy(out.data() + i * sizeof(x), &x, sizeof(x)); };
    if (dtype == DType::Float64) put(numbers[i]);
    if (dtype == DType::Float32) put(static_cast<float>(numbers[i]));
    if (dtype == DType::BFloat16) put(to_bfloat(static_cast<float>(numbers[i])));
  }
  return out;
}

inline std::vector<double> random_numbers(size_t count, unsigned seed, double scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<double> out(count);
  for (double& x : out) x = normal(random);
  return out;
}

/// Every combination that has kernels.
inline std::vector<ElementTypes> all_types() {
  const std::vector<DType> types = {DType::Float64, DType::Float32, DType::BFloat16};
  std::vector<ElementTypes> out;
  for (const DType weights : types)
    for (const DType gradients : types)
      for (const std::optional<DType>& master :
           std::vector<std::optional<DType>>{{}, DType::Float64, DType::Float32, DType::BFloat16})
        for (const std::optional<DType>& copy :
             std::vector<std::optional<DType>>{{}, DType::Float64, DType::Float32, DType::BFloat16}) {
          StepConfig step;
          step.weights = weights, step.gradients = gradients, step.master = master, step.master_gradients = copy;
          const ElementTypes found = element_types(step, weights);
          if (check_types(found)) out.push_back(found);
        }
  return out;
}

}  // namespace piper
