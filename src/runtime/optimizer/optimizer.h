// How weights change after a step: flat kernels on raw memory.
//
// Every element is computed alone, in float32 (float64 where moments are), with the operations of torch.optim in their
// order. So a range may be cut anywhere: the pieces give the same bits as the whole.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "model/element_types.h"

namespace piper {

/// The values of one step.
struct OptimizerSettings {
  Optimizer kind = Optimizer::AdamW;
  double learning_rate = 1e-3;
  double beta1 = 0.9;     // adamw
  double beta2 = 0.95;    // adamw
  double epsilon = 1e-8;  // adamw: added to the root
  double weight_decay =
      0.1;                // adamw: taken off the weights; sgd and momentum: added to the gradients, times the weights
  double momentum = 0.9;  // momentum
  friend bool operator==(const OptimizerSettings&, const OptimizerSettings&) = default;
};

/// The kernels know float64, float32 and bfloat16, and master copies that are wider than the weights. E105: others.
Checked check_types(const ElementTypes& types);

/// Before the first step: moments are 0, the master copy is the weights.
void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                      int64_t count);

/// One step of one range. `step` counts from 1; gradients are multiplied by `gradient_scale` before anything else.
void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step, double gradient_scale,
            std::byte* weights, const std::byte* gradients, std::byte* state, int64_t count);

/// In float64 and in an order that depends on the count alone. Not finite if an element is not.
double sum_of_squares(DType dtype, const std::byte* numbers, int64_t count);

}  // namespace piper
