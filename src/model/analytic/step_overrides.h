// The settings of a step that somebody asked for; the rest follows from the model.
#pragma once

#include "model/analytic/model_config.h"
#include "model/model_graph.h"

namespace piper {

/// From a configuration's `[step]` or from flags; what is empty was not asked for.
struct StepOverrides {
  std::optional<int64_t> batch;
  std::optional<int64_t> sequence;
  std::optional<DType> weights;
  std::optional<DType> gradients;
  std::optional<std::optional<DType>> master;            // inside: a dtype, or explicitly none
  std::optional<std::optional<DType>> master_gradients;  // the same
  std::optional<Optimizer> optimizer;
  std::optional<DType> moments;
  std::optional<bool> ema;
};

/// What weights, gradients and the optimizer's numbers are made of, by name.
enum class PrecisionRecipe {
  Mixed,     // bfloat16 weights; gradients, master copies and moments in float32
  BFloat16,  // all in bfloat16, as PyTorch trains a model that was converted
  Float32,   // all in float32
};
StepOverrides step_of(PrecisionRecipe precision);

/// `first` where it says something, else `second`.
StepOverrides merge(const StepOverrides& first, const StepOverrides& second);

/// What is not asked for: batch 1, the model's sequence or 4096, bfloat16 weights (reference: float32), float32
/// gradients, adamw, and a float32 master copy unless the weights are float32 or wider.
StepConfig resolve(const StepOverrides& overrides, const ModelConfig& config);

/// Applies to a model that is already built. Its sequence and weights are fixed: asking for others is refused (E105).
Checked apply(const StepOverrides& overrides, StepConfig& step);

}  // namespace piper
