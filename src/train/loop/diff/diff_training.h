// `piper diff`: a training under a schedule, beside one device or another schedule.
#pragma once

#include "train/loop/diff/diff.h"
#include "train/loop/training.h"

namespace piper {

struct DiffRequest {
  std::optional<Schedule> schedule;  // none: one device that runs the batch at once
  std::optional<Schedule> against;   // none: one device that runs the same slices in turn
  std::string against_name;
  int64_t steps = 1;
  DiffOptions options;
  int threads = 1;  // of every device inside one operator
};

/// Takes steps until something differs. Every step starts from the same weights on both sides, so that rounding does
/// not add up. Throws RunError.
Result<DiffReport> diff_training(const SourceFilePtr& config, const TrainConfig& train, const DiffRequest& request);

}  // namespace piper
