// What updates weights and reads scalars of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "runtime/optimizer/optimizer.h"

namespace piper {

/// Elements whose squares are summed up.
struct ElementSpan {
  DType dtype = DType::Float32;
  const std::byte* elements = nullptr;
  int64_t count = 0;
};

/// On memory of the processor's place, and on the stream that the calling thread uses now.
class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                                int64_t count) = 0;
  virtual void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step,
                      const GradientScale& scale, std::byte* weights, const std::byte* gradients, std::byte* state,
                      int64_t count, ElementPart part) = 0;
  /// Every scalar as it is, then the sum of squares of every range: the same bits everywhere.
  virtual std::vector<double> read(std::span<const at::Tensor> scalars, std::span<const ElementSpan> ranges) = 0;
};

}  // namespace piper
