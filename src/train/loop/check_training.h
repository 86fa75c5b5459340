// What `piper train` would refuse, found without values and without a device.
#pragma once

#include <memory>
#include <optional>

#include "compile/compile.h"
#include "kernels/kernel_store.h"
#include "model/analytic/step_overrides.h"

namespace piper {

struct CheckedTraining {
  Compiled step;
  std::optional<Compiled> evaluation;  // if the configuration has one
};

/// Captures the model of a configuration and compiles the schedule for it, as training does. Nothing: the configuration
/// has an analytic form only. `step`: wins over what the configuration says. `kernels`: those of a run whose chunks are
/// compiled; nothing is compiled here.
Result<std::optional<CheckedTraining>> check_training(const SourceFilePtr& config, const StepOverrides& step,
                                                      const Schedule& schedule, const CompileOptions& options = {},
                                                      const std::shared_ptr<KernelStore>& kernels = nullptr);

}  // namespace piper
