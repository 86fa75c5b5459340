// What devices keep from step to step.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace piper {

/// The buffers of a device that have what a step begins with, when the one before has updated the weights: weights, and
/// what the optimizer keeps.
std::vector<BufferId> lasting_state(const PlanTemplate& program);

/// Whether that is the same on both of them, byte by byte, after every update: replicas, but for what ZeRO divides
/// among them.
bool keep_the_same(const Plan& plan, int one, int other);

}  // namespace piper
