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

/// For every operation: what ended last of all that it waits for.
void find_causes(const Plan& plan, const std::vector<DeviceFlight>& flights, sim::SimulatedTimes& times,
                 const std::map<int, int>& last_to_come) {
  times.cause.assign(times.start.size(), -1);
  for (size_t lane = 0; lane < flights.size(); ++lane) {
    const auto& ops = program_of(plan, flights[lane].device).ops;
    std::map<int, int> last_on;  // by stream
    const auto first = static_cast<size_t>(times.first[lane]);
    for (size_t i = 0; i < ops.size(); ++i) {
      int& cause = times.cause[first + i];
      const auto consider = [&](int other) {
        if (cause < 0 || times.end[static_cast<size_t>(other)] > times.end[static_cast<size_t>(cause)]) cause = other;
      };
      for (const int wait : ops[i].waits) consider(static_cast<int>(first) + wait);
      if (const auto before = last_on.find(ops[i].stream); before != last_on.end()) consider(before->second);
      last_on[ops[i].stream] = static_cast<int>(first + i);
    }
  }
  // what a communication waited for is what its last device waited for
  std::vector<int> own = times.cause;
  for (size_t lane = 0; lane < flights.size(); ++lane) {
    const auto& ops = program_of(plan, flights[lane].device).ops;
    for (size_t i = 0; i < ops.size(); ++i)
      if (const auto last = last_to_come.find(ops[i].communication); last != last_to_come.end())
        times.cause[static_cast<size_t>(times.first[lane]) + i] = own[static_cast<size_t>(last->second)];
  }
}

}  // namespace

Simulation measured_step(const Plan& plan, const std::vector<DeviceFlight>& flights, int64_t step) {
  Simulation out;
  const Nanoseconds zero = beginning(flights, step);
  const std::vector<int> template_of = template_of_device(plan);
  std::map<int, int> last_to_come;  // by communication
  out.times.first.push_back(0);
  for (const DeviceFlight& flight : flights) {
    out.devices.push_back({flight.device});
    out.plan_of.push_back(template_of[static_cast<size_t>(flight.device)]);
    const PlanTemplate& program = program_of(plan, flight.device);
    for (size_t i = 0; i < program.ops.size(); ++i) {
      const OpTimes& times = flight.step(step)[i];
      const int index = static_cast<int>(out.times.start.size());
      out.times.start.push_back(static_cast<double>(times.started - zero) * 1e-9);
      out.times.end.push_back(static_cast<double>(times.ended - zero) * 1e-9);
      out.seconds = std::max(out.seconds, out.times.end.back());
      const int communication = program.ops[i].communication;
      if (communication < 0) continue;
      const auto [found, fresh] = last_to_come.try_emplace(communication, index);
      if (out.times.start[static_cast<size_t>(found->second)] < out.times.start.back()) found->second = index;
    }
    out.times.first.push_back(static_cast<int>(out.times.start.size()));
  }
  find_causes(plan, flights, out.times, last_to_come);
  for (size_t lane = 0; lane < flights.size(); ++lane) {
    const auto& ops = program_of(plan, flights[lane].device).ops;
    for (size_t i = 0; i < ops.size(); ++i) {
      const auto last = last_to_come.find(ops[i].communication);
      if (last == last_to_come.end()) continue;
      // devices of other parts of a partition do not wait for each other: never later than the own end
      const auto index = static_cast<size_t>(out.times.first[lane]) + i;
      out.times.start[index] = std::min(
          out.times.end[index], std::max(out.times.start[index], out.times.start[static_cast<size_t>(last->second)]));
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
