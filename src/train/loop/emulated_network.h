// An emulated network: communication between threads takes as long as a cluster's links say.
#pragma once

#include "cost/cluster.h"
#include "plan/plan.h"

namespace piper {

/// How long every communication of the plan takes if it has the links to itself: as long as its slowest part.
Table<CommunicationId, double> communication_seconds(const Plan& plan, const Cluster& cluster);

}  // namespace piper
