// Which numbers make sense for an optimizer, whoever gives them: those of torch.optim.
#pragma once

#include <cmath>
#include <string_view>

#include "base/result.h"
#include "runtime/optimizer/optimizer.h"

namespace piper {

struct NumberLimit {
  bool (*has)(double);
  std::string_view words;
};
inline constexpr NumberLimit positive = {[](double x) { return std::isfinite(x) && x > 0; }, "above 0"};
inline constexpr NumberLimit not_negative = {[](double x) { return std::isfinite(x) && x >= 0; }, "0 or more"};
inline constexpr NumberLimit not_positive = {[](double x) { return std::isfinite(x) && x <= 0; }, "0 or less"};
inline constexpr NumberLimit one_or_more = {[](double x) { return std::isfinite(x) && x >= 1; }, "1 or more"};
inline constexpr NumberLimit below_one = {[](double x) { return x >= 0 && x < 1; }, "at least 0 and below 1"};

inline constexpr NumberLimit learning_rate_limit = not_negative, weight_decay_limit = not_negative,
                             epsilon_limit = positive, beta_limit = below_one, momentum_limit = below_one,
                             clip_limit = positive, rate_limit = not_negative, ema_decay_limit = below_one,
                             beta2_decay_limit = not_positive, least_rms_limit = not_negative,
                             clip_threshold_limit = one_or_more;
inline constexpr int64_t most_newton_schulz_steps = 99;

/// Numbers of one step. E105: one that makes no sense.
Checked check_settings(const OptimizerSettings& settings);
/// E105: a number that makes no sense.
Checked check_group(const ParameterGroup& group);
/// The largest norm, or absolute value, that gradients keep. E105: one that makes no sense.
Checked check_clip(std::string_view name, double clip);

}  // namespace piper
