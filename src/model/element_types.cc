#include "model/element_types.h"

namespace piper {

ElementTypes element_types(const StepConfig& step, DType weights) {
  ElementTypes types;
  types.weights = weights;
  types.gradients = step.gradients;
  if (step.master && *step.master != weights) types.master = step.master;
  if (step.master_gradients && *step.master_gradients != step.gradients) types.master_gradients = step.master_gradients;
  const DType precise = step.master.value_or(DType::Float32);
  types.moments = bytes_of(weights) > bytes_of(precise) ? weights : precise;
  if (step.ema) types.ema = types.moments;
  return types;
}

int64_t saved_state_bytes(const ElementTypes& types, Optimizer kind) {
  const auto bytes = [](const std::optional<DType>& dtype) { return dtype ? bytes_of(*dtype) : 0; };
  return moments(kind) * bytes_of(types.moments) + bytes(types.master) + bytes(types.ema);
}

int64_t state_bytes(const ElementTypes& types, Optimizer kind, int64_t count) {
  const int64_t gradients = types.master_gradients ? bytes_of(*types.master_gradients) : 0;
  return (saved_state_bytes(types, kind) + gradients) * count;
}

}  // namespace piper
