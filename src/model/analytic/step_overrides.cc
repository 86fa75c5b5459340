#include "model/analytic/step_overrides.h"

#include <fmt/format.h>

#include "model/element_types.h"

namespace piper {
namespace {

constexpr int64_t usual_sequence = 4096;

}  // namespace

StepOverrides step_of(PrecisionRecipe precision) {
  StepOverrides out;
  const bool wide = precision == PrecisionRecipe::Float32, narrow = precision == PrecisionRecipe::BFloat16;
  out.weights = wide ? DType::Float32 : DType::BFloat16;
  out.gradients = narrow ? DType::BFloat16 : DType::Float32;
  out.master = narrow ? DType::BFloat16 : DType::Float32;  // where weights are of that type there is no copy
  return out;
}

StepOverrides merge(const StepOverrides& first, const StepOverrides& second) {
  StepOverrides merged = second;
  const auto take = [](auto& to, const auto& from) {
    if (from.has_value()) to = from;
  };
  take(merged.batch, first.batch);
  take(merged.sequence, first.sequence);
  take(merged.weights, first.weights);
  take(merged.gradients, first.gradients);
  take(merged.master, first.master);
  take(merged.master_gradients, first.master_gradients);
  take(merged.optimizer, first.optimizer);
  take(merged.moments, first.moments);
  take(merged.ema, first.ema);
  return merged;
}

StepConfig resolve(const StepOverrides& overrides, const ModelConfig& config) {
  StepConfig step;
  step.batch = overrides.batch.value_or(1);
  step.sequence = overrides.sequence.value_or(config.seq > 0 ? config.seq : usual_sequence);
  step.weights = overrides.weights.value_or(is_reference(config.arch) ? DType::Float32 : DType::BFloat16);
  step.gradients = overrides.gradients.value_or(DType::Float32);
  const std::optional<DType> usual_master =
      bytes_of(step.weights) < bytes_of(DType::Float32) ? std::optional(DType::Float32) : std::nullopt;
  step.master = overrides.master.value_or(usual_master);
  step.master_gradients = overrides.master_gradients.value_or(std::nullopt);
  step.optimizer = overrides.optimizer.value_or(Optimizer::AdamW);
  step.moments = overrides.moments;
  step.ema = overrides.ema.value_or(false);
  return step;
}

Checked apply(const StepOverrides& overrides, StepConfig& step) {
  if (overrides.sequence && *overrides.sequence != step.sequence)
    return error(ErrorCode::E105, {},
                 fmt::format("sequence {} asked for, but the model is written for sequence {}", *overrides.sequence,
                             step.sequence))
        .help("the shapes of a model in text form are fixed; use a configuration (.toml) or analytic:NAME");
  if (overrides.weights && *overrides.weights != step.weights)
    return error(ErrorCode::E105, {},
                 fmt::format("weights {} asked for, but the model is written for weights {}", name(*overrides.weights),
                             name(step.weights)))
        .help("the dtypes of a model in text form are fixed; use a configuration (.toml) or analytic:NAME");
  step.batch = overrides.batch.value_or(step.batch);
  if (step.batch < 1 || step.batch > 1'000'000'000)
    return error(ErrorCode::E105, {}, fmt::format("batch {} must be between 1 and 10^9", step.batch))
        .help("for example --batch 8");
  step.gradients = overrides.gradients.value_or(step.gradients);
  step.master = overrides.master.value_or(step.master);
  step.master_gradients = overrides.master_gradients.value_or(step.master_gradients);
  step.optimizer = overrides.optimizer.value_or(step.optimizer);
  if (overrides.moments) step.moments = overrides.moments;
  step.ema = overrides.ema.value_or(step.ema);
  return check_moments(step);
}

}  // namespace piper
