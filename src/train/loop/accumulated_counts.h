// Steps whose gradients are summed up for one update, where the loss divides by what it counts: tokens that are not
// padding.
//
// All of them together are one batch, so their slices must be divided by the count of all. A step does not know what
// those after it count, and divides by the count of its own batch. Before the next step the sums of gradients are
// multiplied by the count of the step before and divided by that of the next, and at the update by the last count over
// that of all. Where the samples of all steps can be read before the first, each is divided by the count of all.
#pragma once

#include <vector>

#include "base/result.h"
#include "capture/capture.h"
#include "runtime/frame.h"

namespace piper {

class AccumulatedCounts {
 public:
  /// `captured` outlives it.
  explicit AccumulatedCounts(const CapturedModel& captured) : captured_(captured) {}

  /// The settings of the next step, with what it counts. E105: steps that are summed up count differently, and no one
  /// factor makes up for it.
  Result<StepSettings> weigh(StepSettings settings);
  /// The step with these settings was taken.
  void taken() { before_ = next_; }

 private:
  struct Steps {
    CountTotals totals;          // of all steps of this update so far
    std::vector<double> counts;  // that the last of them was divided by
  };
  StepSettings weigh_ahead(StepSettings settings);
  /// What the sums of the steps before are multiplied by.
  Result<double> factor(const std::vector<double>& before, const std::vector<double>& now) const;

  const CapturedModel& captured_;
  Steps before_, next_;
};

}  // namespace piper
