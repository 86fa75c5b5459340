// What `piper diff` says of a training.
#pragma once

#include "train/loop/diff/diff.h"
#include "train_loop/trained.h"

namespace piper {

/// Trains until something differs from one device.
DiffReport diffed(const TrainableModel& model, const CapturedModel& captured, std::shared_ptr<const Plan> plan,
                  const TrainSettings& settings, const DiffOptions& options = {});

}  // namespace piper
