// What `piper train` would refuse, found without values and without a device.
#pragma once

#include <optional>

#include "compile/compile.h"
#include "model/analytic/step_overrides.h"

namespace piper {

/// Captures the model of a configuration and compiles the schedule for it, as training does. Nothing: the configuration
/// has an analytic form only. `step`: wins over what the configuration says.
Result<std::optional<Compiled>> check_training(const SourceFilePtr& config, const StepOverrides& step,
                                               const Schedule& schedule, const CompileOptions& options = {});

}  // namespace piper
