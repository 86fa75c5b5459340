#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/config.h"

namespace piper {

double learning_rate(const TrainConfig& config, int64_t step) {
  const LrSchedule& rate = config.rate;
  const double peak = config.optimizer.learning_rate;
  if (step < rate.warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(rate.warmup);
  const int64_t total = rate.total > 0 ? rate.total : config.run.steps;
  if (step >= total) return peak * rate.min_lr_ratio;
  const double done = static_cast<double>(step - rate.warmup) / static_cast<double>(total - rate.warmup);
  return peak * (rate.min_lr_ratio + (1 - rate.min_lr_ratio) * (1 + std::cos(std::numbers::pi * done)) / 2);
}

}  // namespace piper
