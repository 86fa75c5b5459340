// What was measured, with what says what happened meanwhile.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "calibrate/measured_steps.h"
#include "cost/cluster.h"
#include "plan/plan.h"

namespace piper {

struct Observation {
  std::string set;                   // of what its error is reported with
  std::string job;                   // plans for the same job are alternatives
  std::shared_ptr<const Plan> plan;  // of the step; none: a kernel by itself
  std::shared_ptr<const PlanWork> work;  // only this computation was measured; none: the whole step
  double seconds = 0;
};

/// Of a row that is a kernel.
Observation kernel_observation(const MeasuredStep& step);

}  // namespace piper
