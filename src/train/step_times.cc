#include "train/step_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/time_text.h"

namespace piper {

void StepTimes::add(double seconds) {
  if (last_.empty()) last_.reserve(most);
  const size_t place = added_ == 0 ? 0 : (added_ - 1) % most;  // the second step takes that of the first
  if (place < last_.size())
    last_[place] = seconds;
  else
    last_.push_back(seconds);
  ++added_;
}

std::optional<double> StepTimes::median() const {
  if (last_.empty()) return std::nullopt;
  std::vector<double> sorted = last_;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

std::string print_prediction(const StepTimes& measured, std::optional<double> predicted) {
  const std::optional<double> median = measured.median();
  if (!median || !predicted || !(*predicted > 0)) return "";
  const double percent = 100 * (*median / *predicted - 1);
  return fmt::format("a step takes {} (median), {} by prediction: {:.1f} % {} than predicted\n", human_seconds(*median),
                     human_seconds(*predicted), std::abs(percent), percent < 0 ? "shorter" : "longer");
}

}  // namespace piper
