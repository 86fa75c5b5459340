// The critical path of a step, as a sum that can be priced for other speeds without simulating again.
#pragma once

#include "calibrate/observation.h"
#include "sim/groupings.h"
#include "sim/simulate.h"

namespace piper {

/// Operations one after the other. Each keeps how much longer than alone it took beside others.
struct StepPath {
  struct Computation {
    int kind = 0;  // of device, into the cluster's
    const PlanWork* work = nullptr;
    double times = 0;  // how often, weighted with how much longer than alone
  };
  struct Communication {
    sim::ProcessGroup group;
    OpKind kind = OpKind::Send;
    int64_t bytes = 0;
    double times = 0;
  };
  std::vector<Computation> computations;
  std::vector<Communication> communications;
  double other = 0;  // seconds that no parameter changes
};

/// The critical path of a simulated step. Valid while the plan is.
StepPath path_of(const Plan& plan, const Cluster& cluster, const Simulation& simulation);
/// One computation alone, on the first kind of device.
StepPath path_of(const PlanWork& work);

/// Seconds of the operations on the path.
double seconds(const StepPath& path, const Cluster& cluster);

}  // namespace piper
