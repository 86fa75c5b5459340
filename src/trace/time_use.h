// What a device did with its time: one arithmetic for traces and for the simulator's report.
#pragma once

#include <cstddef>
#include <vector>

namespace piper {

/// Something that a stream of a device did.
struct Activity {
  int stream = 0;
  bool communication = false;  // otherwise it computes or updates
  double start = 0, end = 0;
};

/// Seconds of one device during a step; compute + exposed + idle is the step.
struct TimeUse {
  double compute = 0;        // computing or updating on some stream
  double exposed = 0;        // not computing while a communication is in progress
  double idle = 0;           // neither
  double communication = 0;  // a communication is in progress, hidden or not
  std::vector<double> busy;  // by stream
};

/// Of a step of `seconds`.
TimeUse time_use(const std::vector<Activity>& activities, size_t streams, double seconds);

}  // namespace piper
