// What the devices did with their time.
#pragma once

#include "sim/simulate.h"

namespace piper {

/// Seconds of one device of a kind during the step; compute + exposed + idle is the step.
struct DeviceUse {
  double compute = 0;        // computing or updating on some stream
  double exposed = 0;        // not computing while a communication of the device is under way
  double idle = 0;           // neither
  double communication = 0;  // a communication is under way, hidden or not
  std::vector<double> busy;  // by stream of the plan
};

std::vector<DeviceUse> device_use(const Plan& plan, const Simulation& simulation);

}  // namespace piper
