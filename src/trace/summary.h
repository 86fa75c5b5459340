// The numbers of a trace that people compare: what the devices did with their time and memory.
#pragma once

#include <string>
#include <vector>

#include "trace/trace.h"

namespace piper {

/// Communication is every kind but `run` and `update`.
bool is_communication(const TraceEvent& event);

/// One device of a lane during a step; compute + exposed + idle is the step.
struct LaneSummary {
  double compute = 0;        // computing or updating on some stream
  double exposed = 0;        // not computing while a communication is under way
  double idle = 0;           // neither
  double communication = 0;  // a communication is under way, hidden or not
  std::vector<double> busy;  // by stream
  int64_t peak_bytes = 0;
  double peak_time = 0;  // seconds from the start of the trace
};

struct TraceSummary {
  double seconds = 0;
  double tokens_per_second = 0;  // 0: not known
  double bubble = 0;             // share of the devices' time without computation
  double exposed = 0;            // the part of it in which communication was under way
  int64_t peak_bytes = 0;        // of the fullest device
  std::vector<LaneSummary> lanes;
};

/// The steps of a trace; one from 0 to its end if it names none.
std::vector<TraceStep> steps_of(const Trace& trace);

/// By step.
std::vector<TraceSummary> summarize(const Trace& trace);

}  // namespace piper
