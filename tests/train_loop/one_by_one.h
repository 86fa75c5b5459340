// The reference where groups of devices differ in size: without compiler and runtime (train/loop/diff/reference_step.h).
#pragma once

#include "train_loop/trained.h"

namespace piper {

/// Steps of AdamW, written down anew.
Trained train_one_by_one(const TrainableModel& model, const CapturedModel& captured, const Plan& plan,
                         const TrainSettings& settings);

}  // namespace piper
