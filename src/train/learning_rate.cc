#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/config.h"

namespace piper {
namespace {

/// A schedule in its unit, and where a step is in it.
struct Course {
  double warmup, total, decay;
  double done;  // before the step
  double own;   // of the step
};

Course course_of(const TrainConfig& config, const RunPosition& at) {
  const LrSchedule& rate = config.rate;
  const bool tokens = rate.unit == LrUnit::Tokens;
  const int64_t left = std::max<int64_t>(0, config.run.steps - at.step);
  const int64_t whole_run = tokens ? at.tokens + left * at.tokens_of_step : config.run.steps;
  Course out{};
  out.own = static_cast<double>(tokens ? at.tokens_of_step : 1);
  out.done = static_cast<double>(tokens ? at.tokens : at.step);
  out.warmup = static_cast<double>(rate.warmup);
  out.total = static_cast<double>(rate.total > 0 ? rate.total : whole_run);
  out.decay = static_cast<double>(rate.decay);
  if (rate.decay == 0) out.decay = std::max(out.own, (out.total - out.warmup) / 5);
  return out;
}

/// What is left of the way from the lowest rate to the peak.
double left(LrShape shape, const Course& course) {
  const double share = (course.done - course.warmup) / (course.total - course.warmup);
  switch (shape) {
    case LrShape::Constant:
    case LrShape::InverseRoot:
      return 1;
    case LrShape::Linear:
      return 1 - share;
    case LrShape::Cosine:
      return (1 + std::cos(std::numbers::pi * share)) / 2;
    case LrShape::Wsd:
      return std::min(1.0, (course.total - course.done) / course.decay);
  }
  return 1;
}

}  // namespace

double learning_rate(const TrainConfig& config, const RunPosition& at) {
  const LrSchedule& rate = config.rate;
  const double peak = config.optimizer.learning_rate;
  const Course course = course_of(config, at);
  if (course.done < course.warmup) return peak * std::min(1.0, (course.done + course.own) / course.warmup);
  if (rate.shape == LrShape::Constant) return peak;
  if (rate.shape == LrShape::InverseRoot) {
    const double warmup = std::max(course.warmup, course.own);
    return peak * std::max(rate.min_lr_ratio, std::sqrt(warmup / std::max(warmup, course.done + course.own)));
  }
  if (course.done >= course.total) return peak * rate.min_lr_ratio;
  return peak * (rate.min_lr_ratio + (1 - rate.min_lr_ratio) * left(rate.shape, course));
}

}  // namespace piper
