#include "runtime/progress.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/device_run.h"

namespace piper {
namespace {

bool has_started(const PlanTemplate& program, const DeviceProgress& device, size_t op) {
  const auto stream = static_cast<size_t>(program.ops[op].stream);
  return stream < device.streams.size() && static_cast<int>(op) <= device.streams[stream].op;
}

/// Devices that take part in a communication and have not reached it.
std::vector<int> missing_from(const Plan& plan, const std::vector<DeviceProgress>& devices, int communication) {
  std::vector<int> missing;
  for (const DeviceProgress& device : devices) {
    const PlanTemplate& program = program_of(plan, device.device);
    for (size_t i = 0; i < program.ops.size(); ++i)
      if (program.ops[i].communication == communication && !has_started(program, device, i))
        missing.push_back(device.device);
  }
  return missing;
}

constexpr double long_silence = 2;  // seconds; processes speak several times a second

std::string and_silent(const DeviceProgress& device) {
  std::string out = device.where.empty() ? "" : fmt::format(" [{}", device.where);
  if (device.silent > long_silence) out += fmt::format("; no sign of life for {:.1f} s", device.silent);
  return out.empty() ? out : out + "]";
}

/// Empty: nobody in particular.
std::string describe_culprits(const Plan& plan, const std::vector<DeviceProgress>& devices) {
  std::vector<std::string> silent, busy;
  for (const DeviceProgress& device : devices) {
    if (device.silent > long_silence)
      silent.push_back(fmt::format("device {} ({}) gives no sign of life", device.device, device.where));
    const PlanTemplate& program = program_of(plan, device.device);
    for (const DeviceProgress::Last& last : device.streams)
      if (last.op >= 0 && !last.ended && !is_communication(program.ops[static_cast<size_t>(last.op)].kind))
        busy.push_back(fmt::format("{} does not end", describe_op(plan, device.device, last.op)));
  }
  return fmt::format("{}", fmt::join(silent.empty() ? busy : silent, "; "));
}

std::string describe_progress(const Plan& plan, const std::vector<DeviceProgress>& devices) {
  std::string out;
  for (const DeviceProgress& device : devices) {
    const PlanTemplate& program = program_of(plan, device.device);
    bool busy = false;
    for (const DeviceProgress::Last& last : device.streams) {
      if (last.op < 0 || last.ended) continue;
      busy = true;
      const PlannedOp& op = program.ops[static_cast<size_t>(last.op)];
      const std::vector<int> missing =
          is_communication(op.kind) ? missing_from(plan, devices, op.communication) : std::vector<int>{};
      out += fmt::format("  {} since {:.1f} s{}", describe_op(plan, device.device, last.op), last.since + device.silent,
                         and_silent(device));
      if (!missing.empty())
        out += fmt::format("; device{} {} {} not reached it", missing.size() > 1 ? "s" : "", fmt::join(missing, ", "),
                           missing.size() > 1 ? "have" : "has");
      out += "\n";
    }
    if (busy) continue;
    size_t next = 0;
    while (next < program.ops.size() && has_started(program, device, next)) ++next;
    out += next == program.ops.size()
               ? fmt::format("  device {} has ended the step{}\n", device.device, and_silent(device))
               : fmt::format("  {} has not started{}\n", describe_op(plan, device.device, static_cast<int>(next)),
                             and_silent(device));
  }
  return out;
}

}  // namespace

DeviceProgress progress_of(const DeviceRun& device) {
  const FlightRecorder& recorder = device.recorder();
  DeviceProgress out;
  out.device = device.device();
  out.step = recorder.step();
  out.ended = device.progress();
  for (size_t i = 0; i < recorder.ops(); ++i) {
    const auto stream = static_cast<size_t>(device.program().ops[i].stream);
    if (out.streams.size() <= stream) out.streams.resize(stream + 1);
    const OpTimes times = recorder.times(out.step, static_cast<int>(i));
    if (times.started != 0)
      out.streams[stream] = {static_cast<int>(i), static_cast<double>(now() - times.started) * 1e-9, times.ended != 0};
  }
  return out;
}

std::string describe_stall(const Plan& plan, const std::string& what, const std::vector<DeviceProgress>& devices) {
  const std::string culprits = describe_culprits(plan, devices);
  return fmt::format("{}{}{}\n{}", what, culprits.empty() ? "" : ": ", culprits, describe_progress(plan, devices));
}

}  // namespace piper
