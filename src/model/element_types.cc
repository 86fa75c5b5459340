#include "model/element_types.h"

#include <fmt/format.h>

namespace piper {

ElementTypes element_types(const StepConfig& step, DType weights) {
  ElementTypes types;
  types.weights = weights;
  types.gradients = step.gradients;
  if (step.master && *step.master != weights) types.master = step.master;
  if (step.master_gradients && *step.master_gradients != step.gradients) types.master_gradients = step.master_gradients;
  const DType precise = step.master.value_or(DType::Float32);
  const DType wide = bytes_of(weights) > bytes_of(precise) ? weights : precise;
  types.moments = step.moments.value_or(wide);
  types.random_rounding = bytes_of(types.moments) < bytes_of(wide);
  if (step.ema) types.ema = wide;
  return types;
}

DType ElementTypes::arithmetic() const {
  const bool wide = weights == DType::Float64 || moments == DType::Float64 || master == DType::Float64;
  return wide ? DType::Float64 : DType::Float32;
}

Checked check_moments(const StepConfig& step) {
  if (!step.moments) return Ok{};
  if (*step.moments != DType::BFloat16)
    return error(ErrorCode::E105, {}, fmt::format("moments of dtype {}", name(*step.moments)))
        .help("moments are bfloat16, rounded at random, or without that as wide as the master copy");
  if (step.optimizer == Optimizer::AdamW || step.optimizer == Optimizer::Momentum || step.optimizer == Optimizer::Lion)
    return Ok{};
  return error(ErrorCode::E105, {},
               fmt::format("moments of a type of their own mean nothing for {}", name(step.optimizer)))
      .help("leave them out, or choose adamw, momentum or lion");
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
