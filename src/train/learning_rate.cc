#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/config.h"

namespace piper {
namespace {

/// What is left of the way from the lowest rate to the peak, after so many of the steps that it takes.
double left(const LrSchedule& rate, int64_t step, int64_t total) {
  const auto share = [](int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); };
  const int64_t done = step - rate.warmup, all = total - rate.warmup;
  switch (rate.shape) {
    case LrShape::Constant:
    case LrShape::InverseRoot:
      return 1;
    case LrShape::Linear:
      return 1 - share(done, all);
    case LrShape::Cosine:
      return (1 + std::cos(std::numbers::pi * share(done, all))) / 2;
    case LrShape::Wsd:
      return std::min(1.0, share(total - step, rate.decay));
  }
  return 1;
}

}  // namespace

double learning_rate(const TrainConfig& config, int64_t step) {
  const LrSchedule& rate = config.rate;
  const double peak = config.optimizer.learning_rate;
  if (step < rate.warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(rate.warmup);
  if (rate.shape == LrShape::Constant) return peak;
  if (rate.shape == LrShape::InverseRoot) {
    const auto warmup = static_cast<double>(std::max<int64_t>(rate.warmup, 1));
    return peak * std::max(rate.min_lr_ratio, std::sqrt(warmup / std::max(warmup, static_cast<double>(step + 1))));
  }
  const int64_t total = rate.total > 0 ? rate.total : config.run.steps;
  if (step >= total) return peak * rate.min_lr_ratio;
  return peak * (rate.min_lr_ratio + (1 - rate.min_lr_ratio) * left(rate, step, total));
}

}  // namespace piper
