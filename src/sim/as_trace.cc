#include "sim/as_trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/memory_curve.h"

namespace piper {

Trace as_trace(const Plan& plan, const Cluster& cluster, const Simulation& simulation) {
  Trace trace;
  trace.source = "simulated";
  trace.model = plan.model;
  trace.cluster = cluster.name;
  trace.plan = fmt::format("{:016x}", hash(plan));
  trace.seconds = simulation.seconds;
  trace.streams = plan.streams;
  for (int c = 0; c < category_count; ++c) trace.categories.emplace_back(name(static_cast<Category>(c)));
  for (const PlanOrigin& origin : plan.origins) trace.origins.push_back({origin.place, origin.text});
  const std::vector<int>& first = simulation.times.first;
  for (size_t lane = 0; lane < simulation.devices.size(); ++lane) {
    trace.lanes.push_back(simulation.devices[lane]);
    trace.capacity.push_back(kind_of(cluster, simulation.devices[lane][0]).memory.value_or(0));
    const PlanTemplate& t = plan.templates[static_cast<size_t>(simulation.plan_of[lane])];
    for (size_t i = 0; i < t.ops.size(); ++i) {
      const PlannedOp& op = t.ops[i];
      const size_t global = static_cast<size_t>(first[lane]) + i;
      TraceEvent event;
      event.lane = static_cast<int>(lane);
      event.stream = op.stream;
      event.op = static_cast<int>(i);
      event.name = describe(plan, op.label);
      event.kind = name(op.kind);
      if (op.label.pass) event.pass = name(*op.label.pass);
      event.slice = op.label.slice;
      event.start = simulation.times.start[global];
      event.end = simulation.times.end[global];
      if (op.communication >= 0) event.bytes = plan.communications[static_cast<size_t>(op.communication)].bytes;
      event.origin = op.origin;
      event.waits = op.waits;
      if (const int cause = simulation.times.cause[global]; cause >= 0) {
        event.cause.lane = static_cast<int>(std::upper_bound(first.begin(), first.end(), cause) - first.begin()) - 1;
        event.cause.op = cause - first[static_cast<size_t>(event.cause.lane)];
      }
      trace.events.push_back(std::move(event));
    }
    for (const MemoryPoint& point : memory_curve(plan, simulation, lane))
      trace.memory.push_back(
          {static_cast<int>(lane), point.time, std::vector<int64_t>(point.bytes.begin(), point.bytes.end())});
  }
  return trace;
}

}  // namespace piper
