// What `piper train` would refuse, found without numbers and without a device.
#pragma once

#include "compile/compile.h"
#include "model/analytic/step_overrides.h"

namespace piper {

enum class Trainable { No, Yes };

/// Captures the model of a configuration and compiles the schedule for it, as training does. `No`: the configuration
/// has an analytic form only, so there is nothing to agree with. `step`: wins over what the configuration says.
Result<Trainable> check_training(const SourceFilePtr& config, const StepOverrides& step, const Schedule& schedule,
                                 const CompileOptions& options);

}  // namespace piper
