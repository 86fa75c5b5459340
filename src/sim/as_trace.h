// A simulated step as a trace, for the timeline page and other viewers.
#pragma once

#include "sim/simulate.h"
#include "trace/trace.h"

namespace piper {

/// One lane for every kind of device.
Trace as_trace(const Plan& plan, const Cluster& cluster, const Simulation& simulation);

}  // namespace piper
