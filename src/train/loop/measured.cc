#include "train/loop/measured.h"

#include <algorithm>
#include <limits>
#include <map>

#include "runtime/device_run.h"
#include "sim/as_trace.h"

namespace piper {
namespace {

Nanoseconds beginning(const std::vector<DeviceFlight>& flights, int64_t step) {
  Nanoseconds first = std::numeric_limits<Nanoseconds>::max();
  for (const DeviceFlight& flight : flights)
    for (const OpTimes& times : flight.step(step)) first = std::min(first, times.launched);
  return first;
}

/// Each has a lane of its own.
IdRange<sim::LaneId> lanes_of(const std::vector<DeviceFlight>& flights) {
  return {sim::LaneId(0), sim::LaneId(flights.size())};
}

/// For every operation: what ended last of all that it waits for.
void find_causes(const Plan& plan, const std::vector<DeviceFlight>& flights, sim::SimulatedTimes& times,
                 const std::map<CommunicationId, sim::SimulatedOpId>& last_to_come) {
  times.cause.assign(times.start.size(), {});
  for (const sim::LaneId lane : lanes_of(flights)) {
    const auto& ops = program_of(plan, flights[lane.index()].device).ops;
    std::map<PlanStreamId, sim::SimulatedOpId> last_on;
    for (const OpId i : ops.ids()) {
      sim::SimulatedOpId& cause = times.cause[times.at(lane, i)];
      const auto consider = [&](sim::SimulatedOpId other) {
        if (!cause.valid() || times.end[other] > times.end[cause]) cause = other;
      };
      for (const OpId wait : ops[i].waits) consider(times.at(lane, wait));
      if (const auto before = last_on.find(ops[i].stream); before != last_on.end()) consider(before->second);
      last_on[ops[i].stream] = times.at(lane, i);
    }
  }
  // what a communication waited for is what its last device waited for
  const auto own = times.cause;
  for (const sim::LaneId lane : lanes_of(flights)) {
    const auto& ops = program_of(plan, flights[lane.index()].device).ops;
    for (const OpId i : ops.ids())
      if (const auto last = last_to_come.find(ops[i].communication); last != last_to_come.end())
        times.cause[times.at(lane, i)] = own[last->second];
  }
}

}  // namespace

Simulation measured_step(const Plan& plan, const std::vector<DeviceFlight>& flights, int64_t step) {
  Simulation out;
  const Nanoseconds zero = beginning(flights, step);
  const std::vector<TemplateId> template_of = template_of_device(plan);
  std::map<CommunicationId, sim::SimulatedOpId> last_to_come;
  out.times.first.push_back(0);
  for (const DeviceFlight& flight : flights) {
    out.devices.push_back({flight.device});
    out.plan_of.push_back(template_of[static_cast<size_t>(flight.device)]);
    const PlanTemplate& program = program_of(plan, flight.device);
    for (const OpId i : program.ops.ids()) {
      const OpTimes& times = flight.step(step)[i.index()];
      const sim::SimulatedOpId id = out.times.start.add(static_cast<double>(times.started - zero) * 1e-9);
      out.times.end.push_back(static_cast<double>(times.ended - zero) * 1e-9);
      out.seconds = std::max(out.seconds, out.times.end.back());
      const CommunicationId communication = program.ops[i].communication;
      if (!communication.valid()) continue;
      const auto [found, fresh] = last_to_come.try_emplace(communication, id);
      if (out.times.start[found->second] < out.times.start.back()) found->second = id;
    }
    out.times.first.push_back(static_cast<int>(out.times.start.size()));
  }
  find_causes(plan, flights, out.times, last_to_come);
  for (const sim::LaneId lane : lanes_of(flights)) {
    const auto& ops = program_of(plan, flights[lane.index()].device).ops;
    for (const OpId i : ops.ids()) {
      const auto last = last_to_come.find(ops[i].communication);
      if (last == last_to_come.end()) continue;
      // devices of other parts of a partition do not wait for each other: never later than the own end
      const sim::SimulatedOpId id = out.times.at(lane, i);
      out.times.start[id] = std::min(out.times.end[id], std::max(out.times.start[id], out.times.start[last->second]));
    }
  }
  out.limited_by.assign(plan.communications.size(), -1);
  return out;
}

Trace measured_trace(const Plan& plan, const std::vector<DeviceFlight>& flights, const Cluster& cluster,
                     int64_t tokens) {
  Trace out;
  if (flights.empty()) return out;
  const Nanoseconds zero = beginning(flights, flights[0].oldest);
  for (int64_t step = flights[0].oldest; step <= flights[0].newest(); ++step) {
    Trace one = as_trace(plan, cluster, measured_step(plan, flights, step));
    const double offset = static_cast<double>(beginning(flights, step) - zero) * 1e-9;
    const int index = static_cast<int>(out.steps.size());
    for (TraceEvent& event : one.events) {
      event.start += offset;
      event.end += offset;
      event.step = index;
    }
    for (TraceMemory& point : one.memory) point.time += offset;
    if (index == 0) {
      out = one;
      out.steps.clear();
    } else {
      out.events.insert(out.events.end(), one.events.begin(), one.events.end());
      out.memory.insert(out.memory.end(), one.memory.begin(), one.memory.end());
    }
    out.steps.push_back({step, offset, offset + one.seconds});
    out.seconds = offset + one.seconds;
  }
  out.source = "measured";
  out.tokens = tokens;
  return out;
}

}  // namespace piper
