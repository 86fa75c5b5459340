// What devices keep from step to step.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace piper {

/// The buffers of a device that a step inherits from the one before: weights and optimizer state.
std::vector<BufferId> lasting_state(const PlanTemplate& program);

/// Whether that is the same on both devices, byte by byte, after every update: replicas among which ZeRO divides
/// nothing.
bool keep_the_same(const Plan& plan, int one, int other);

}  // namespace piper
