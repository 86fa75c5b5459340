// The reference where groups of devices differ in size, without compiler and runtime: the chunks of a model one after
// the other, each on slices of its own group's size, and values joined where the next chunk cuts them differently.
#pragma once

#include "train_loop/trained.h"

namespace piper {

/// Loss, norm and gradients of the first step. From the plan only what is cut how: parts of the batch, and samples of
/// every chunk.
Trained step_one_by_one(const TrainableModel& model, const CapturedModel& captured, const Plan& plan);

/// The same of a run.
Trained first_step(const Trained& run);

}  // namespace piper
