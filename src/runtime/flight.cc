#include "runtime/flight.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/device_run.h"

namespace piper {

DeviceFlight flight_of(DeviceRun& device) {
  const FlightRecorder& recorder = device.recorder();
  const ArenaUse arena = device.arena();
  DeviceFlight out{device.device(),        recorder.oldest(),    {},
                   device.memory().peak(), arena.bytes,          arena.alive,
                   arena.arena_misses,     device.launch_time(), device.operations().operators()};
  const RowCounts& rows = device.frame().rows;
  out.exchanges = rows.exchanges;
  out.longer = rows.longer;
  out.rows = rows.rows;
  out.further_rows = rows.further;
  for (int64_t step = recorder.oldest(); step <= recorder.step(); ++step) {
    std::vector<OpTimes>& times = out.steps.emplace_back();
    for (size_t i = 0; i < recorder.ops(); ++i) times.push_back(recorder.times(step, OpId(i)));
  }
  return out;
}

std::vector<DeviceFlight> flights_of(const std::vector<DeviceRun*>& devices) {
  std::vector<DeviceFlight> out;
  for (DeviceRun* device : devices) out.push_back(flight_of(*device));
  return out;
}

void shift(std::vector<DeviceFlight>& flights, Nanoseconds ahead) {
  for (DeviceFlight& flight : flights)
    for (std::vector<OpTimes>& step : flight.steps)
      for (OpTimes& times : step)
        for (Nanoseconds* time : {&times.launched, &times.started, &times.ended})
          if (*time != 0) *time -= ahead;
}

std::string describe_flight(const Plan& plan, const std::vector<DeviceFlight>& flights, size_t operations) {
  std::string out;
  for (const DeviceFlight& flight : flights) {
    struct Entry {
      OpTimes times;
      OpId op;
    };
    std::vector<Entry> started;
    const std::vector<OpTimes>& step = flight.steps.back();
    for (size_t i = 0; i < step.size(); ++i)
      if (step[i].started != 0) started.push_back({step[i], OpId(i)});
    std::sort(started.begin(), started.end(),
              [](const Entry& a, const Entry& b) { return a.times.started < b.times.started; });
    if (started.size() > operations)
      started.erase(started.begin(), started.end() - static_cast<std::ptrdiff_t>(operations));
    for (const Entry& entry : started) {
      const std::string ended =
          entry.times.ended == 0
              ? std::string("in progress")
              : fmt::format("{:.3f} ms", static_cast<double>(entry.times.ended - entry.times.started) * 1e-6);
      out += fmt::format("  {}: {}\n", describe_op(plan, flight.device, entry.op), ended);
    }
  }
  return out;
}

}  // namespace piper
