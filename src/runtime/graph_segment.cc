#include "runtime/graph_segment.h"

#include <algorithm>
#include <utility>

namespace piper {

GraphSegment::GraphSegment(const SegmentDevice& device, IdRange<OpId> ops, std::unique_ptr<CudaGraph> work)
    : device_(device), ops_(ops), work_(std::move(work)) {
  Table<BufferId, char> known(device.program.buffers.size(), 0);
  for (const OpId i : ops)
    for (const auto* list : {&device.program.ops[i].reads, &device.program.ops[i].writes})
      for (const BufferId buffer : *list)
        if (!std::exchange(known[buffer], 1) && !device.program.buffers[buffer].persistent) touched_.push_back(buffer);
}

bool GraphSegment::launch() {
  return launched_ = try_to_launch();
}

bool GraphSegment::try_to_launch() {
  const auto first = device_.executors.begin() + ops_.first.value, last = device_.executors.begin() + ops_.past.value;
  if (!work_ || !work_->ready() ||
      !std::all_of(first, last, [](const auto& executor) { return executor->can_be_recorded(); }))
    return false;
  OpId op = ops_.first;
  const Nanoseconds launched = now();
  device_.attempt(op, [&] {
    for (const OpId next : ops_) {
      op = next;
      device_.recorder.launched(op.value, launched);
      if (device_.before_op) device_.before_op(op);
      device_.executors[op]->renew(device_.frame);
    }
  });
  if (!recorded_) {
    if (!record()) return false;
  } else if (places() == places_) {
    device_.frame.make(changes_);
  } else {
    return false;
  }
  const Nanoseconds started = now();
  for (const OpId i : ops_) device_.recorder.started(i.value, started);
  device_.attempt(ops_.first, [&] { device_.side.launch(ops_.first.value, ops_.past.value - 1, *work_); });
  const Nanoseconds ended = now();
  for (const OpId i : ops_) device_.recorder.ended(i.value, ended);
  return true;
}

bool GraphSegment::record() {
  std::vector<const void*> places_now = places();
  const Frame::State before = device_.frame.state();
  device_.frame.recording = true;
  const bool fine = work_->record([&] { run_all(); });
  device_.frame.recording = false;
  if (fine) {
    recorded_ = true;
    places_ = std::move(places_now);
    changes_ = device_.frame.changes_since(before);
  } else {
    device_.frame.go_back(before);
    work_.reset();
  }
  return fine;
}

/// What the last operation frees goes when all has been put in.
void GraphSegment::run_all() {
  for (const OpId op : ops_) {
    device_.side.started(op.value);
    device_.executors[op]->run(device_.frame);
    device_.side.ended(op.value);
    device_.frame.ended(op);
    if (op.value + 1 == ops_.past.value) continue;
    for (const BufferRelease& release : device_.order.releases[op])
      for (const BufferId buffer : release.buffers) device_.frame.release(buffer);
  }
}

std::vector<const void*> GraphSegment::places() const {
  std::vector<const void*> out;
  for (const BufferId buffer : touched_) {
    const at::Tensor& tensor = device_.frame[buffer];
    out.push_back(tensor.defined() ? tensor.const_data_ptr() : nullptr);
  }
  return out;
}

std::vector<GraphSegment> find_segments(const SegmentDevice& device, Processor& processor) {
  const Table<OpId, PlannedOp>& ops = device.program.ops;
  std::vector<GraphSegment> out;
  OpId begin{0};
  const auto close = [&](OpId end) {
    if (begin < end) out.emplace_back(device, IdRange<OpId>{begin, end}, processor.make_graph());
    begin = end;
  };
  for (const OpId i : ops.ids()) {
    if (begin < i && (!ops[i].waits.empty() || !device.order.loaders[i].empty() || ops[i].stream != ops[begin].stream))
      close(i);
    if (ops[i].kind != OpKind::Run) {
      close(i);
      begin = OpId(i.value + 1);
    } else if (std::any_of(device.order.releases[i].begin(), device.order.releases[i].end(),
                           [&](const BufferRelease& r) { return !r.awaited.empty() || r.stream != ops[i].stream; })) {
      close(OpId(i.value + 1));
    }
  }
  close(OpId(ops.size()));
  return out;
}

}  // namespace piper
