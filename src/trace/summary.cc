#include "trace/summary.h"

#include <algorithm>

namespace piper {
namespace {

/// The largest sum of the samples in force during the step.
void find_peaks(const Trace& trace, const TraceStep& step, std::vector<LaneSummary>& lanes) {
  std::vector<const TraceMemory*> before(lanes.size(), nullptr);
  const auto total = [](const TraceMemory& memory) {
    int64_t sum = 0;
    for (const int64_t bytes : memory.bytes) sum += bytes;
    return sum;
  };
  const auto take = [&](const TraceMemory& memory, double time) {
    LaneSummary& lane = lanes[static_cast<size_t>(memory.lane)];
    if (const int64_t bytes = total(memory); bytes > lane.peak_bytes) lane.peak_bytes = bytes, lane.peak_time = time;
  };
  for (const TraceMemory& memory : trace.memory) {
    if (memory.time < step.start)
      before[static_cast<size_t>(memory.lane)] = &memory;
    else if (memory.time <= step.end)
      take(memory, memory.time);
  }
  for (const TraceMemory* memory : before)
    if (memory) take(*memory, step.start);
}

}  // namespace

bool is_communication(const TraceEvent& event) {
  return event.kind != "run" && event.kind != "update";
}

std::vector<TraceStep> steps_of(const Trace& trace) {
  return trace.steps.empty() ? std::vector<TraceStep>{{0, 0, trace.seconds}} : trace.steps;
}

std::vector<TraceSummary> summarize(const Trace& trace) {
  const std::vector<TraceStep> steps = steps_of(trace);
  const size_t lanes = trace.lanes.size();
  std::vector<std::vector<Activity>> activities(steps.size() * lanes);
  for (const TraceEvent& event : trace.events)
    activities[static_cast<size_t>(event.step) * lanes + static_cast<size_t>(event.lane)].push_back(
        {event.stream, is_communication(event), event.start, event.end});
  std::vector<TraceSummary> out(steps.size());
  for (size_t s = 0; s < steps.size(); ++s) {
    TraceSummary& summary = out[s];
    summary.seconds = steps[s].end - steps[s].start;
    summary.lanes.resize(lanes);
    double time = 0, computing = 0, exposed = 0;
    find_peaks(trace, steps[s], summary.lanes);
    for (size_t l = 0; l < lanes; ++l) {
      LaneSummary& lane = summary.lanes[l];
      lane.use = time_use(activities[s * lanes + l], trace.streams.size(), summary.seconds);
      const auto count = static_cast<double>(trace.lanes[l].size());
      time += count * summary.seconds;
      computing += count * lane.use.compute;
      exposed += count * lane.use.exposed;
      summary.peak_bytes = std::max(summary.peak_bytes, lane.peak_bytes);
    }
    if (time <= 0) continue;
    summary.bubble = 1 - computing / time;
    summary.exposed = exposed / time;
    summary.mfu = trace.seconds_at_peak / summary.seconds;
    summary.tokens_per_second = static_cast<double>(trace.tokens) / summary.seconds;
  }
  return out;
}

}  // namespace piper
