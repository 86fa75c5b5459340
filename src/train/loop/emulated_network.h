// An emulated network: communication between threads takes as long as a cluster's links say.
#pragma once

#include "cost/cluster.h"
#include "plan/plan.h"

namespace piper {

/// Seconds of every communication of the plan with the links to itself: the slowest of its parts.
Table<CommunicationId, double> communication_seconds(const Plan& plan, const Cluster& cluster);

}  // namespace piper
