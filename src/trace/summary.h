// The numbers of a trace that people compare: what the devices did with their time and memory.
#pragma once

#include <string>
#include <vector>

#include "trace/time_use.h"
#include "trace/trace.h"

namespace piper {

/// Communication is every kind but `run` and `update`.
bool is_communication(const TraceEvent& event);

/// One device of a lane during a step.
struct LaneSummary {
  TimeUse use;
  int64_t peak_bytes = 0;
  double peak_time = 0;  // seconds from the start of the trace
};

struct TraceSummary {
  double seconds = 0;
  double tokens_per_second = 0;  // 0: not known
  double mfu = 0;                // the model's floating-point operations over the devices' peak; 0: not known
  double bubble = 0;             // share of the devices' time without computation
  double exposed = 0;            // the part of it in which communication was in progress
  int64_t peak_bytes = 0;        // of the fullest device
  std::vector<LaneSummary> lanes;
};

/// The steps of a trace; one from 0 to its end if it names none.
std::vector<TraceStep> steps_of(const Trace& trace);

/// By step.
std::vector<TraceSummary> summarize(const Trace& trace);

}  // namespace piper
