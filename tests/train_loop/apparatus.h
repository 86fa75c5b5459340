// A job, with the faults that the settings of a training ask for.
#pragma once

#include "train_loop/trained.h"

namespace piper {

struct Apparatus {
  std::shared_ptr<const Plan> plan;
  CapturedComputations real;
  std::unique_ptr<Computations> wrapped;
  std::unique_ptr<Job> job;

  Apparatus(const TrainableModel& model, const CapturedModel& captured, std::shared_ptr<const Plan> of,
            const TrainSettings& settings);
};

/// The model outlives it.
StepSettings step_settings(const TrainableModel& model, const TrainSettings& settings, int64_t step);

}  // namespace piper
