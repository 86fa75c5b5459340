#include "train/loop/flight_record.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/device_run.h"

namespace piper {

void add_events(FlightFile& file, const Plan& plan, const std::vector<DeviceFlight>& flights, double ahead) {
  const auto seconds = [&](Nanoseconds time) { return static_cast<double>(time) * 1e-9 - ahead; };
  file.plan = fmt::format("{:016x}", hash(plan));
  file.model = plan.model;
  file.written = seconds(now());
  for (const DeviceFlight& flight : flights) {
    const auto& ops = program_of(plan, flight.device).ops;
    for (int64_t step = flight.oldest; step <= flight.newest(); ++step)
      for (const OpId i : ops.ids()) {
        const OpTimes& times = flight.step(step)[i.index()];
        if (times.started == 0) continue;
        const PlannedOp& op = ops[i];
        FlightEvent& event = file.events.emplace_back();
        event.device = flight.device;
        event.step = step;
        event.op = i.value;
        event.stream = plan.streams[op.stream];
        event.kind = name(op.kind);
        event.name = describe(plan, op.label);
        if (op.label.pass) event.pass = name(*op.label.pass);
        event.slice = op.label.slice;
        if (op.origin.valid()) {
          event.place = plan.origins[op.origin].place;
          event.directive = plan.origins[op.origin].text;
        }
        event.in_progress = times.ended == 0;
        event.started = seconds(times.started);
        event.ended = std::max(event.started, event.in_progress ? file.written : seconds(times.ended));
      }
  }
}

}  // namespace piper
