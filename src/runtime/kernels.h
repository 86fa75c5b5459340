// Kernels that update weights and read the step's scalars.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "runtime/optimizer/optimizer.h"

namespace piper {

/// Elements whose squares are summed.
struct ElementSpan {
  DType dtype = DType::Float32;
  const std::byte* elements = nullptr;
  int64_t count = 0;
};

/// On the processor's memory, and on the calling thread's current stream.
class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                                int64_t count) = 0;
  virtual void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step,
                      const GradientScale& scale, std::byte* weights, const std::byte* gradients, std::byte* state,
                      int64_t count, ElementPart part) = 0;
  /// The scalars, then the sum of squares of every range; the same bits on every kind of processor.
  virtual std::vector<double> read(std::span<const at::Tensor> scalars, std::span<const ElementSpan> ranges) = 0;
};

}  // namespace piper
