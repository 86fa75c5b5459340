// How long the steps of a run take, in memory that does not grow with the run.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace piper {

/// Of the last steps. The first of a run takes longer than the others, and counts only while there is no other.
class StepTimes {
 public:
  static constexpr size_t most = 1024;  // steps that are kept

  void add(double seconds);
  bool empty() const { return last_.empty(); }
  /// None: there was no step.
  std::optional<double> median() const;

 private:
  std::vector<double> last_;  // after `most` steps each takes the place of the oldest
  size_t added_ = 0;
};

/// `a step takes 12.5 ms (median), 10.0 ms by prediction: 25.0 % longer than predicted`, for people. Nothing if nothing
/// was measured or predicted.
std::string print_prediction(const StepTimes& measured, std::optional<double> predicted);

}  // namespace piper
