// What was measured, with the plan that says what happened meanwhile.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cost/cluster.h"
#include "plan/plan.h"

namespace piper {

struct Observation {
  std::string set;                   // of what its error is reported with
  std::string job;                   // plans for the same job are alternatives
  std::shared_ptr<const Plan> plan;  // of the step
  WorkId work;                       // only this computation was measured; none: the whole step
  double seconds = 0;
};

}  // namespace piper
