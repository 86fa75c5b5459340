// What the devices did with their time.
#pragma once

#include "sim/simulate.h"
#include "trace/time_use.h"

namespace piper {

/// One device of every lane; busy by stream of the plan.
Table<sim::LaneId, TimeUse> device_use(const Plan& plan, const Simulation& simulation);

}  // namespace piper
