// Steps as the flight recorders of the devices saw them, in the form that simulated ones have.
#pragma once

#include "runtime/flight.h"
#include "sim/simulate.h"
#include "trace/trace.h"

namespace piper {

/// Every device is a kind of its own. A communication starts when the last of its devices has reached it. Times count
/// from the first start of the step.
Simulation measured_step(const Plan& plan, const std::vector<DeviceFlight>& flights, int64_t step);

/// All steps that are still recorded. `tokens`: of a step.
Trace measured_trace(const Plan& plan, const std::vector<DeviceFlight>& flights, const Cluster& cluster,
                     int64_t tokens);

}  // namespace piper
