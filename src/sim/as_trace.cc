#include "sim/as_trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/issue_order_memory.h"
#include "sim/memory_curve.h"

namespace piper {
namespace {

/// Lifetimes in issue order, as the plan's proof counts them.
void add_buffers(const Plan& plan, const PlanTemplate& t, int lane, std::vector<TraceBuffer>& out) {
  const FirstTouches touches(t);
  std::vector<int> taken(t.buffers.size(), -1), returned(t.buffers.size(), -1);
  for (size_t i = 0; i < t.ops.size(); ++i) {
    for (const int b : touches.of(i)) taken[static_cast<size_t>(b)] = static_cast<int>(i);
    for (const int b : t.ops[i].frees) returned[static_cast<size_t>(b)] = static_cast<int>(i);
  }
  for (size_t b = 0; b < t.buffers.size(); ++b)
    if (const PlanBuffer& buffer = t.buffers[b]; buffer.persistent || taken[b] >= 0)
      out.push_back(
          {lane, describe(plan, buffer.label), static_cast<int>(buffer.category), buffer.bytes, taken[b], returned[b]});
}

}  // namespace

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
          {static_cast<int>(lane), point.time, std::vector<int64_t>(point.bytes.begin(), point.bytes.end()), point.op});
    add_buffers(plan, t, static_cast<int>(lane), trace.buffers);
  }
  return trace;
}

}  // namespace piper
