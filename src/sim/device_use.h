// What the devices did with their time.
#pragma once

#include "sim/simulate.h"
#include "trace/time_use.h"

namespace piper {

/// One device of every kind; busy by stream of the plan.
std::vector<TimeUse> device_use(const Plan& plan, const Simulation& simulation);

}  // namespace piper
