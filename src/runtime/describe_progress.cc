// Reports of a run that does not go on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/job.h"

namespace piper {
namespace {

bool has_started(const DeviceRun& device, int op) {
  return device.recorder().times(device.recorder().step(), op).started != 0;
}

/// Devices that take part in a communication and have not reached it.
std::vector<int> missing_from(const std::vector<DeviceRun*>& devices, int communication) {
  std::vector<int> missing;
  for (const DeviceRun* device : devices) {
    const auto& ops = device->program().ops;
    for (size_t i = 0; i < ops.size(); ++i)
      if (ops[i].communication == communication && !has_started(*device, static_cast<int>(i)))
        missing.push_back(device->device());
  }
  return missing;
}

double seconds_since(Nanoseconds time) {
  return static_cast<double>(now() - time) * 1e-9;
}

}  // namespace

std::string describe_progress(const Plan& plan, const std::vector<DeviceRun*>& devices) {
  std::string out;
  for (const DeviceRun* device : devices) {
    const FlightRecorder& recorder = device->recorder();
    bool busy = false;
    int next = -1;
    for (size_t i = 0; i < recorder.ops(); ++i) {
      const OpTimes times = recorder.times(recorder.step(), static_cast<int>(i));
      if (times.started == 0 && next < 0) next = static_cast<int>(i);
      if (times.started == 0 || times.ended != 0) continue;
      busy = true;
      const PlannedOp& op = device->program().ops[i];
      const std::string what = describe_op(plan, device->device(), static_cast<int>(i));
      const std::vector<int> missing =
          is_communication(op.kind) ? missing_from(devices, op.communication) : std::vector<int>{};
      out += fmt::format("  {} since {:.1f} s", what, seconds_since(times.started));
      if (!missing.empty())
        out += fmt::format("; device{} {} {} not reached it", missing.size() > 1 ? "s" : "", fmt::join(missing, ", "),
                           missing.size() > 1 ? "have" : "has");
      out += "\n";
    }
    if (busy) continue;
    out += next < 0 ? fmt::format("  device {} has ended the step\n", device->device())
                    : fmt::format("  {} has not started\n", describe_op(plan, device->device(), next));
  }
  return out;
}

std::string describe_flight(const Plan& plan, const std::vector<DeviceRun*>& devices, size_t operations) {
  std::string out;
  for (const DeviceRun* device : devices) {
    const FlightRecorder& recorder = device->recorder();
    struct Entry {
      OpTimes times;
      int op;
    };
    std::vector<Entry> started;
    for (size_t i = 0; i < recorder.ops(); ++i)
      if (const OpTimes times = recorder.times(recorder.step(), static_cast<int>(i)); times.started != 0)
        started.push_back({times, static_cast<int>(i)});
    std::sort(started.begin(), started.end(),
              [](const Entry& a, const Entry& b) { return a.times.started < b.times.started; });
    if (started.size() > operations)
      started.erase(started.begin(), started.end() - static_cast<std::ptrdiff_t>(operations));
    for (const Entry& entry : started) {
      const std::string ended =
          entry.times.ended == 0
              ? std::string("under way")
              : fmt::format("{:.3f} ms", static_cast<double>(entry.times.ended - entry.times.started) * 1e-6);
      out += fmt::format("  {}: {}\n", describe_op(plan, device->device(), entry.op), ended);
    }
  }
  return out;
}

}  // namespace piper
