// The reference where groups of devices differ in size, without compiler and runtime: the chunks of a model one after
// the other, each on slices of its own group's size, and values joined where the next chunk cuts them differently.
#pragma once

#include "train_loop/trained.h"

namespace piper {

/// Steps of AdamW, written down anew. From the plan only what is cut how: parts of the batch, and samples of every
/// chunk.
Trained train_one_by_one(const TrainableModel& model, const CapturedModel& captured, const Plan& plan,
                         const TrainSettings& settings);

}  // namespace piper
