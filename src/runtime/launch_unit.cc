#include "runtime/launch_unit.h"

#include <utility>

namespace piper {
namespace {

/// Whether the next operation receives what this one sends: both ends of the transfer are on this device, and neither
/// ends before both have begun.
bool sends_to_itself(const PlanTemplate& program, OpId op) {
  const OpId behind(op.value + 1);
  if (!program.ops.contains(behind)) return false;
  const PlannedOp &one = program.ops[op], &next = program.ops[behind];
  return one.kind == OpKind::Send && next.kind == OpKind::Recv && one.communication == next.communication;
}

class UnitMaker {
 public:
  UnitMaker(Operations& operations, DeviceStreams& streams, const FreeOrder& frees, Processor& processor)
      : program_(operations.on().program),
        operations_(operations),
        streams_(streams),
        frees_(frees),
        processor_(processor),
        awaited_(program_.ops.size(), 0) {
    const auto await = [&](const std::vector<OpId>& ops) {
      for (const OpId op : ops) awaited_[op] = 1;
    };
    for (const OpId i : program_.ops.ids()) {
      if (is_communication(program_.ops[i].kind))
        awaited_[i] = 1;  // the event says when others have read what was sent
      await(program_.ops[i].waits);
      await(frees.loaders[i]);
      for (const BufferFree& free : frees.frees[i]) await(free.after);
    }
  }

  std::vector<LaunchUnit> make() {
    std::vector<LaunchUnit> out;
    OpId next{0};
    const auto singly_until = [&](OpId end) {
      for (; next < end; next = OpId(next.index() + out.back().launches.size())) out.push_back(unit_of(next));
    };
    if (processor_.graphs() == Graphs::Step)
      for (const IdRange<OpId> segment : find_segments(program_, frees_)) {
        singly_until(segment.first);
        out.push_back(unit_of(segment));
        next = segment.past;
      }
    singly_until(OpId(program_.ops.size()));
    return out;
  }

 private:
  /// With the next operation if that receives what this one sends.
  LaunchUnit unit_of(OpId op) {
    LaunchUnit out;
    const OpId past(op.value + (sends_to_itself(program_, op) ? 2 : 1));
    for (const OpId i : IdRange<OpId>{op, past}) {
      Launch& launch = out.launches.emplace_back(launch_of(i));
      launch.stream = &streams_.of_operation(program_.ops[i]);
      launch.work = [this_one = &operations_, i] { this_one->run(i); };
      if (awaited_[i] || streams_.is_serial()) launch.records = {i};
      out.frees.insert(out.frees.end(), frees_.frees[i].begin(), frees_.frees[i].end());
    }
    return out;
  }

  LaunchUnit unit_of(IdRange<OpId> ops) {
    LaunchUnit out;
    out.segment = std::make_unique<GraphSegment>(operations_, ops, frees_, processor_.make_graph());
    for (const OpId op : ops) out.singly.push_back(unit_of(op));
    Launch& launch = out.launches.emplace_back(launch_of(ops.first));
    launch.stream = &streams_.of_segment(program_.ops[ops.first]);
    launch.work = [segment = out.segment.get()] { segment->launch(); };
    for (const OpId op : ops)
      if (awaited_[op]) launch.records.push_back(op);
    out.frees = frees_.frees[OpId(ops.past.value - 1)];
    return out;
  }

  Launch launch_of(OpId op) const {
    Launch out;
    out.op = op;
    out.waits = program_.ops[op].waits;
    out.waits.insert(out.waits.end(), frees_.loaders[op].begin(), frees_.loaders[op].end());
    return out;
  }

  const PlanTemplate& program_;
  Operations& operations_;
  DeviceStreams& streams_;
  const FreeOrder& frees_;
  Processor& processor_;
  Table<OpId, char> awaited_;
};

}  // namespace

std::vector<LaunchUnit> make_launch_units(Operations& operations, DeviceStreams& streams, const FreeOrder& frees,
                                          Processor& processor) {
  return UnitMaker(operations, streams, frees, processor).make();
}

}  // namespace piper
