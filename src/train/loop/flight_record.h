// What a process leaves behind when its job fails.
#pragma once

#include "plan/plan.h"
#include "runtime/flight.h"
#include "trace/flight_file.h"

namespace piper {

/// `ahead`: seconds that the clock of this process shows more than the one that times are to be of.
void add_events(FlightFile& file, const Plan& plan, const std::vector<DeviceFlight>& flights, double ahead);

}  // namespace piper
