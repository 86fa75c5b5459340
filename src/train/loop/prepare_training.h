// From a model and a schedule to something that can be trained: captured for exactly the slices that the schedule
// makes.
#pragma once

#include <memory>

#include "capture/capture.h"
#include "compile/compile.h"
#include "models/build_model.h"
#include "train/loop/captured_computations.h"

namespace piper {

struct PreparedTraining {
  std::shared_ptr<const CapturedModel> captured;
  std::shared_ptr<const Plan> plan;
};

/// The model captured for slices of any size: enough to see which sizes a schedule makes. Cut where the schedule cuts
/// it.
Result<CapturedModel> sketch(const TrainableModel& model, const Schedule& schedule = {});

/// Compiles the schedule for a sketch (for another, if the schedule cuts the model), and captures the model for the
/// sizes of slices that it needs. `measure` runs its operators once to see how much memory they take.
Result<CapturedModel> capture_for(const TrainableModel& model, const CapturedModel& whole, const Schedule& schedule,
                                  const CompileOptions& options, bool measure);

/// Captures the model, compiles the schedule, and captures again for the sizes of slices that it needs.
Result<PreparedTraining> prepare_training(const TrainableModel& model, const Schedule& schedule,
                                          const CompileOptions& options = {});
/// Captures the model for a plan that another process has made.
Result<PreparedTraining> prepare_for_plan(const TrainableModel& model, const SourceFilePtr& plan);

}  // namespace piper
