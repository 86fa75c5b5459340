#include "runtime/optimizer/limits.h"

#include <fmt/format.h>

namespace piper {
namespace {

Checked check(std::string_view name, double value, const NumberLimit& limit, std::string_view usual) {
  if (limit.has(value)) return Ok{};
  return error(ErrorCode::E105, {},
               fmt::format("{} is {}, it must be {}{}", name, value, std::isfinite(value) ? "" : "finite and ",
                           limit.words))
      .help(fmt::format("for example {}", usual));
}

}  // namespace

Checked check_settings(const OptimizerSettings& settings) {
  PIPER_CHECK(check("the learning rate", settings.learning_rate, learning_rate_limit, "1e-3"));
  PIPER_CHECK(check("the weight decay", settings.weight_decay, weight_decay_limit, "0.1, or 0 for none"));
  const bool adamw = settings.kind == Optimizer::AdamW || settings.kind == Optimizer::Muon;  // Muon leaves some to it
  if (adamw || settings.kind == Optimizer::Lion) {
    PIPER_CHECK(check("the first of betas", settings.beta1, beta_limit, "betas 0.9 and 0.95"));
    PIPER_CHECK(check("the second of betas", settings.beta2, beta_limit, "betas 0.9 and 0.95"));
  }
  if (adamw) PIPER_CHECK(check("eps", settings.epsilon, epsilon_limit, "1e-8"));
  if (settings.kind == Optimizer::Momentum || settings.kind == Optimizer::Muon)
    PIPER_CHECK(check("momentum", settings.momentum, momentum_limit, "0.9"));
  if (settings.kind == Optimizer::Adafactor) {
    const AdafactorSettings& adafactor = settings.adafactor;
    PIPER_CHECK(check("beta2_decay", adafactor.beta2_decay, beta2_decay_limit, "-0.8"));
    if (adafactor.epsilon) PIPER_CHECK(check("eps", *adafactor.epsilon, epsilon_limit, "1e-8, or none"));
    PIPER_CHECK(check("the least root mean square of a parameter", adafactor.least_rms, least_rms_limit, "1e-3"));
    PIPER_CHECK(check("the clipping threshold", adafactor.clip_threshold, clip_threshold_limit, "1"));
  }
  if (settings.kind == Optimizer::Muon) {
    PIPER_CHECK(check("the factor of AdamW's learning rate", settings.adamw_rate, rate_limit, "1"));
    if (settings.newton_schulz_steps < 1 || settings.newton_schulz_steps > most_newton_schulz_steps)
      return error(ErrorCode::E105, {},
                   fmt::format("ns_steps is {}, it must be between 1 and {}", settings.newton_schulz_steps,
                               most_newton_schulz_steps))
          .help("for example 5");
  }
  PIPER_CHECK(check("the decay of the exponential moving average", settings.ema_decay, ema_decay_limit, "0.999"));
  return Ok{};
}

Checked check_group(const ParameterGroup& group) {
  PIPER_CHECK(check(fmt::format("the factor of {}", group.pattern), group.rate, rate_limit, "0.1"));
  if (!group.weight_decay) return Ok{};
  return check(fmt::format("the weight decay of {}", group.pattern), *group.weight_decay, weight_decay_limit,
               "0 for none");
}

Checked check_clip(std::string_view name, double clip) {
  return check(name, clip, clip_limit, "1; leave it out for none");
}

}  // namespace piper
