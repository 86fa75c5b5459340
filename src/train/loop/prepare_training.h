// From a model and a schedule to something that can be trained: captured for exactly the slices that the schedule
// makes.
#pragma once

#include <functional>
#include <memory>

#include "capture/capture.h"
#include "compile/compile.h"
#include "models/build_model.h"
#include "train/config.h"
#include "train/loop/captured_computations.h"

namespace piper {

struct CompiledTraining {
  std::shared_ptr<const CapturedModel> captured;
  Compiled compiled;
};

/// What devices need of it.
struct PreparedTraining {
  std::shared_ptr<const CapturedModel> captured;
  std::shared_ptr<const Plan> plan;
};

/// What a model is captured for.
struct CaptureFor {
  PlanFor plan_for = PlanFor::Training;
  c10::Device target = c10::kCPU;
  std::shared_ptr<KernelStore> kernels = nullptr;  // none: operators run as they were recorded
};

/// The model of a configuration as its steps or its evaluations run it. E111: groups are about parameters that it does
/// not have, or none is left to train.
Result<TrainableModel> model_of_run(ConfigFile parsed, const TrainConfig& train, const CaptureFor& capture_for);
/// The groups of parameters that are updated otherwise.
std::vector<ParameterGroup> groups_of(const TrainConfig& train, const TrainableModel& model);

/// The model captured for slices of any size: enough to see which sizes a schedule makes. Sharded as
/// the schedule says.
Result<CapturedModel> sketch(const TrainableModel& model, const Schedule& schedule = {});

/// Compiles the schedule for a sketch (for another, if the schedule asks for tensor parallelism), and captures the
/// model for the sizes of slices that it needs. `measure` runs its operators once to see how much memory they take.
Result<CapturedModel> capture_for(const TrainableModel& model, const CapturedModel& whole, const Schedule& schedule,
                                  const CompileOptions& options, bool measure);

/// For the captured model. A region that cannot be sharded comes with the reason that capture has found.
Result<Compiled> compile(const CapturedModel& captured, const Schedule& schedule, const CompileOptions& options = {});

/// Every computation of the plan can be made: what the model cannot do is refused before devices are prepared.
Checked check_programs(const CapturedModel& captured, const Plan& plan);

/// E205: the configuration asks for another number of devices.
Checked check_device_count(const TrainConfig& train, const Plan& plan);

/// Whether there is enough memory for a plan.
using Fits = std::function<Checked(const Plan& plan)>;

struct Preparing {
  bool measure = true;  // operators run once to see how much memory they take
  Fits fits = nullptr;  // asked before that, and once more of the plan that it leads to
};

/// Captures the model, compiles the schedule, and captures again for the sizes of slices that it needs. Everything that
/// the plan runs can be made then.
Result<CompiledTraining> compile_training(const TrainableModel& model, const Schedule& schedule,
                                          const CompileOptions& options = {}, const Preparing& preparing = {});
Result<PreparedTraining> prepare_training(const TrainableModel& model, const Schedule& schedule,
                                          const CompileOptions& options = {}, const Preparing& preparing = {});
/// Captures the model for a plan that another process has made.
Result<PreparedTraining> prepare_for_plan(const TrainableModel& model, const SourceFilePtr& plan,
                                          const Fits& fits = nullptr);

}  // namespace piper
