#include "runtime/graph_segment.h"

#include <algorithm>
#include <utility>

namespace piper {

GraphSegment::GraphSegment(const SegmentDevice& device, size_t begin, size_t end, std::unique_ptr<CudaGraph> work)
    : device_(device), begin_(begin), end_(end), work_(std::move(work)) {
  std::vector<char> known(device.program.buffers.size(), 0);
  for (size_t i = begin; i < end; ++i)
    for (const auto* list : {&device.program.ops[i].reads, &device.program.ops[i].writes})
      for (const int buffer : *list)
        if (!std::exchange(known[static_cast<size_t>(buffer)], 1) &&
            !device.program.buffers[static_cast<size_t>(buffer)].persistent)
          touched_.push_back(buffer);
}

bool GraphSegment::launch() {
  return launched_ = try_to_launch();
}

bool GraphSegment::try_to_launch() {
  const auto first = device_.executors.begin() + static_cast<ptrdiff_t>(begin_),
             last = device_.executors.begin() + static_cast<ptrdiff_t>(end_);
  if (!work_ || !work_->ready() ||
      !std::all_of(first, last, [](const auto& executor) { return executor->can_be_recorded(); }))
    return false;
  int op = static_cast<int>(begin_);
  const int end = static_cast<int>(end_);
  const Nanoseconds launched = now();
  device_.attempt(op, [&] {
    for (; op < end; ++op) {
      device_.recorder.launched(op, launched);
      if (device_.before_op) device_.before_op(op);
      device_.executors[static_cast<size_t>(op)]->renew(device_.frame);
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
  for (int i = static_cast<int>(begin_); i < end; ++i) device_.recorder.started(i, started);
  op = static_cast<int>(begin_);
  device_.attempt(op, [&] { device_.side.launch(op, end - 1, *work_); });
  const Nanoseconds ended = now();
  for (int i = static_cast<int>(begin_); i < end; ++i) device_.recorder.ended(i, ended);
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
  for (size_t i = begin_; i < end_; ++i) {
    const int op = static_cast<int>(i);
    device_.side.started(op);
    device_.executors[i]->run(device_.frame);
    device_.side.ended(op);
    device_.frame.ended(op);
    if (i + 1 == end_) continue;
    for (const BufferRelease& release : device_.order.releases[i])
      for (const int buffer : release.buffers) device_.frame.release(buffer);
  }
}

std::vector<const void*> GraphSegment::places() const {
  std::vector<const void*> out;
  for (const int buffer : touched_) {
    const at::Tensor& tensor = device_.frame[buffer];
    out.push_back(tensor.defined() ? tensor.const_data_ptr() : nullptr);
  }
  return out;
}

std::vector<GraphSegment> find_segments(const SegmentDevice& device, Processor& processor) {
  const std::vector<PlannedOp>& ops = device.program.ops;
  std::vector<GraphSegment> out;
  size_t begin = 0;
  const auto close = [&](size_t end) {
    if (begin < end) out.emplace_back(device, begin, end, processor.make_graph());
    begin = end;
  };
  for (size_t i = 0; i < ops.size(); ++i) {
    if (begin < i && (!ops[i].waits.empty() || !device.order.loaders[i].empty() || ops[i].stream != ops[begin].stream))
      close(i);
    if (ops[i].kind != OpKind::Run) {
      close(i);
      begin = i + 1;
    } else if (std::any_of(device.order.releases[i].begin(), device.order.releases[i].end(),
                           [&](const BufferRelease& r) { return !r.awaited.empty() || r.stream != ops[i].stream; })) {
      close(i + 1);
    }
  }
  close(ops.size());
  return out;
}

}  // namespace piper
