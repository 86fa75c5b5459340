#include "trace/summary.h"

#include <algorithm>

namespace piper {
namespace {

struct Interval {
  double start, end;
};

/// Sorted and without overlap.
std::vector<Interval> united(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
  std::vector<Interval> out;
  for (const Interval& next : all) {
    if (!out.empty() && next.start <= out.back().end)
      out.back().end = std::max(out.back().end, next.end);
    else
      out.push_back(next);
  }
  return out;
}

double length(const std::vector<Interval>& intervals) {
  double sum = 0;
  for (const Interval& i : intervals) sum += i.end - i.start;
  return sum;
}

double common(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double sum = 0;
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[k].end) - std::max(a[i].start, b[k].start));
    a[i].end < b[k].end ? ++i : ++k;
  }
  return sum;
}

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

void find_use(const std::vector<const TraceEvent*>& events, double seconds, LaneSummary& lane) {
  std::vector<Interval> computing, communicating;
  for (const TraceEvent* event : events) {
    lane.busy[static_cast<size_t>(event->stream)] += event->end - event->start;
    (is_communication(*event) ? communicating : computing).push_back({event->start, event->end});
  }
  computing = united(std::move(computing));
  communicating = united(std::move(communicating));
  lane.compute = length(computing);
  lane.communication = length(communicating);
  lane.exposed = lane.communication - common(computing, communicating);
  lane.idle = seconds - lane.compute - lane.exposed;
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
  std::vector<std::vector<const TraceEvent*>> events(steps.size() * lanes);
  for (const TraceEvent& event : trace.events)
    events[static_cast<size_t>(event.step) * lanes + static_cast<size_t>(event.lane)].push_back(&event);
  std::vector<TraceSummary> out(steps.size());
  for (size_t s = 0; s < steps.size(); ++s) {
    TraceSummary& summary = out[s];
    summary.seconds = steps[s].end - steps[s].start;
    summary.lanes.resize(lanes);
    double time = 0, computing = 0, exposed = 0;
    find_peaks(trace, steps[s], summary.lanes);
    for (size_t l = 0; l < lanes; ++l) {
      LaneSummary& lane = summary.lanes[l];
      lane.busy.assign(trace.streams.size(), 0);
      find_use(events[s * lanes + l], summary.seconds, lane);
      const auto count = static_cast<double>(trace.lanes[l].size());
      time += count * summary.seconds;
      computing += count * lane.compute;
      exposed += count * lane.exposed;
      summary.peak_bytes = std::max(summary.peak_bytes, lane.peak_bytes);
    }
    if (time <= 0) continue;
    summary.bubble = 1 - computing / time;
    summary.exposed = exposed / time;
    summary.tokens_per_second = static_cast<double>(trace.tokens) / summary.seconds;
  }
  return out;
}

}  // namespace piper
