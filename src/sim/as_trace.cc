#include "sim/as_trace.h"

#include <fmt/format.h>

#include "plan/issue_order_memory.h"
#include "sim/memory_curve.h"

namespace piper {
namespace {

/// Lifetimes in issue order, as the plan's proof counts them.
void add_buffers(const Plan& plan, const PlanTemplate& t, int lane, std::vector<TraceBuffer>& out) {
  const FirstTouches touches(t);
  Table<BufferId, OpId> taken(t.buffers.size()), returned(t.buffers.size());
  for (const OpId i : t.ops.ids()) {
    for (const BufferId b : touches.of(i)) taken[b] = i;
    for (const BufferId b : t.ops[i].frees) returned[b] = i;
  }
  for (const BufferId b : t.buffers.ids())
    if (const PlanBuffer& buffer = t.buffers[b]; buffer.persistent || taken[b].valid())
      out.push_back({lane, describe(plan, buffer.label), static_cast<int>(buffer.category), buffer.bytes,
                     taken[b].value, returned[b].value});
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
  const sim::SimulatedTimes& times = simulation.times;
  for (const sim::LaneId lane : simulation.devices.ids()) {
    trace.lanes.push_back(simulation.devices[lane]);
    trace.capacity.push_back(kind_of(cluster, simulation.devices[lane][0]).memory.value_or(0));
    const PlanTemplate& t = plan.templates[simulation.plan_of[lane]];
    for (const OpId i : t.ops.ids()) {
      const PlannedOp& op = t.ops[i];
      const sim::SimulatedOpId global = times.at(lane, i);
      TraceEvent event;
      event.lane = lane.value;
      event.stream = op.stream.value;
      event.op = i.value;
      event.name = describe(plan, op.label);
      event.kind = name(op.kind);
      if (op.label.pass) event.pass = name(*op.label.pass);
      event.slice = op.label.slice;
      event.start = times.start[global];
      event.end = times.end[global];
      if (op.communication.valid()) event.bytes = plan.communications[op.communication].bytes;
      event.origin = op.origin.value;
      for (const OpId wait : op.waits) event.waits.push_back(wait.value);
      if (const sim::SimulatedOpId cause = times.cause[global]; cause.valid())
        event.cause = {times.lane_of(cause).value, times.op_of(cause).value};
      trace.events.push_back(std::move(event));
    }
    for (const MemoryPoint& point : memory_curve(plan, simulation, lane))
      trace.memory.push_back(
          {lane.value, point.time, std::vector<int64_t>(point.bytes.begin(), point.bytes.end()), point.op.value});
    add_buffers(plan, t, lane.value, trace.buffers);
  }
  return trace;
}

}  // namespace piper
