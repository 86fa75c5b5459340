#include "runtime/progress.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/device_run.h"

namespace piper {
namespace {

bool has_started(const PlanTemplate& program, const DeviceProgress& device, OpId op) {
  const size_t stream = program.ops[op].stream.index();
  return stream < device.streams.size() && op <= device.streams[stream].op;
}

/// Processes speak several times a second; whoever was silent half as long as the most silent one is as suspicious.
double long_silence(const std::vector<DeviceProgress>& devices) {
  double most = 0;
  for (const DeviceProgress& device : devices) most = std::max(most, device.silent);
  return std::max(2.0, most / 2);
}

const DeviceProgress* find(const std::vector<DeviceProgress>& devices, int device) {
  const auto found = std::find_if(devices.begin(), devices.end(), [&](const auto& d) { return d.device == device; });
  return found == devices.end() ? nullptr : &*found;
}

std::string and_silent(const DeviceProgress& device) {
  std::string out = device.where.empty() ? "" : fmt::format(" [{}", device.where);
  if (device.silent > 2) out += fmt::format("; no sign of life for {:.1f} s", device.silent);
  return out.empty() ? out : out + "]";
}

}  // namespace

DeviceProgress progress_of(const DeviceRun& device) {
  const FlightRecorder& recorder = device.recorder();
  DeviceProgress out;
  out.device = device.device();
  out.step = recorder.step();
  out.ended = device.operations().ended();
  Table<OpId, char> ended(recorder.ops(), 0);
  std::vector<bool> held_up;  // by stream: what comes next was perhaps issued, but has not begun
  for (const OpId op : ended.ids()) {
    const PlannedOp& planned = device.program().ops[op];
    const size_t stream = planned.stream.index();
    if (out.streams.size() <= stream) {
      out.streams.resize(stream + 1);
      held_up.resize(stream + 1);
    }
    const OpTimes times = recorder.times(out.step, op);
    if (times.started == 0 || held_up[stream]) continue;
    if (!std::all_of(planned.waits.begin(), planned.waits.end(), [&](OpId awaited) { return ended[awaited]; })) {
      held_up[stream] = true;
      continue;
    }
    const bool done = device.has_ended(op);
    ended[op] = done;
    held_up[stream] = !done;
    out.streams[stream] = {op, static_cast<double>(now() - times.started) * 1e-9, done,
                           static_cast<double>(recorder.longest(op)) * 1e-9};
  }
  return out;
}

Partners::Partners(const Plan& plan) : plan_(plan) {
  for (const PlanTemplate& program : plan.templates) {
    for (const int device : program.devices) programs_[device] = &program;
    auto& operations = operations_[&program];
    for (const OpId i : program.ops.ids())
      if (is_communication(program.ops[i].kind)) operations[{program.ops[i].communication, program.ops[i].kind}] = i;
  }
}

std::vector<int> Partners::of(int device, OpId op) const {
  const PlannedOp& operation = programs_.at(device)->ops[op];
  const Communication& communication = plan_.communications[operation.communication];
  std::vector<int> out;
  if (communication.transfer) {
    const bool sends = operation.kind == OpKind::Send;
    const DeviceList& mine = plan_.groups[sends ? communication.from : communication.to];
    const DeviceList& theirs = plan_.groups[sends ? communication.to : communication.from];
    const auto position = static_cast<int>(std::find(mine.begin(), mine.end(), device) - mine.begin());
    for (const TransferPiece& piece : transfer_pieces(
             position, mine, theirs, static_cast<int64_t>(mine.size() * theirs.size()), plan_.devices_per_sample()))
      out.push_back(piece.peer);
  } else if (operation.kind == OpKind::ReducePieces) {  // who needs whom depends on the cuts: all that take part
    for (const auto& [other, program] : programs_)
      if (operations_.at(program).contains({operation.communication, operation.kind})) out.push_back(other);
  } else {
    const PlanPartition& over = plan_.partitions[communication.over];
    const auto position = std::find(over.members.begin(), over.members.end(), device) - over.members.begin();
    const auto first = over.members.begin() + position / over.part_size * over.part_size;
    out.assign(first, first + over.part_size);
  }
  return out;
}

std::vector<int> Partners::missing(const std::vector<DeviceProgress>& devices, const DeviceProgress& device,
                                   OpId op) const {
  const PlannedOp& operation = programs_.at(device.device)->ops[op];
  if (!is_communication(operation.kind)) return {};
  const OpKind other_end = operation.kind == OpKind::Send   ? OpKind::Recv
                           : operation.kind == OpKind::Recv ? OpKind::Send
                                                            : operation.kind;
  std::vector<int> out;
  for (const int partner : of(device.device, op)) {
    if (partner == device.device) continue;
    const DeviceProgress* found = find(devices, partner);
    const PlanTemplate& program = *programs_.at(partner);
    const OpId theirs = operations_.at(&program).at({operation.communication, other_end});
    if (!found || found->step < device.step || (found->step == device.step && !has_started(program, *found, theirs)))
      out.push_back(partner);
  }
  return out;
}

std::set<std::string> silent_processes(const std::vector<DeviceProgress>& devices) {
  std::set<std::string> out;
  for (const DeviceProgress& device : devices)
    if (device.silent > long_silence(devices)) out.insert(device.where);
  return out;
}

std::string describe_silent(const std::vector<DeviceProgress>& devices) {
  std::vector<std::string> out;
  for (const DeviceProgress& device : devices)
    if (device.silent > long_silence(devices))
      out.push_back(fmt::format("device {} ({}) gives no sign of life", device.device, device.where));
  return fmt::format("{}", fmt::join(out, "; "));
}

std::string describe_progress(const Plan& plan, const std::vector<DeviceProgress>& devices) {
  std::string out;
  const Partners partners(plan);
  for (const DeviceProgress& device : devices) {
    const PlanTemplate& program = program_of(plan, device.device);
    bool busy = false;
    for (const DeviceProgress::Last& last : device.streams) {
      if (!last.op.valid() || last.ended) continue;
      busy = true;
      std::vector<int> missing = partners.missing(devices, device, last.op);
      std::erase_if(missing, [&](int other) { return !find(devices, other); });
      out += fmt::format("  {} since {:.1f} s{}", describe_op(plan, device.device, last.op), last.since + device.silent,
                         and_silent(device));
      if (!missing.empty())
        out += fmt::format("; device{} {} {} not reached it", missing.size() > 1 ? "s" : "", fmt::join(missing, ", "),
                           missing.size() > 1 ? "have" : "has");
      out += "\n";
    }
    if (busy) continue;
    OpId next{0};
    while (program.ops.contains(next) && has_started(program, device, next)) next = OpId(next.value + 1);
    out += !program.ops.contains(next)
               ? fmt::format("  device {} has ended the step{}\n", device.device, and_silent(device))
               : fmt::format("  {} has not started{}\n", describe_op(plan, device.device, next), and_silent(device));
  }
  return out;
}

}  // namespace piper
