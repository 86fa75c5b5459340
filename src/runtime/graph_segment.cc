#include "runtime/graph_segment.h"

#include <algorithm>
#include <utility>

namespace piper {

GraphSegment::GraphSegment(Operations& operations, IdRange<OpId> ops, const FreeOrder& frees,
                           std::unique_ptr<CudaGraph> graph)
    : operations_(operations), ops_(ops), graph_(std::move(graph)) {
  const PlanTemplate& program = operations.on().program;
  Table<BufferId, char> known(program.buffers.size(), 0);
  for (const OpId i : ops) {
    for (const auto* list : {&program.ops[i].reads, &program.ops[i].writes})
      for (const BufferId buffer : *list)
        if (!std::exchange(known[buffer], 1) && !program.buffers[buffer].persistent) touched_.push_back(buffer);
    std::vector<BufferId>& freed = freed_.emplace_back();
    if (i.value + 1 == ops.past.value) continue;
    for (const BufferFree& free : frees.frees[i]) freed.insert(freed.end(), free.buffers.begin(), free.buffers.end());
  }
}

bool GraphSegment::try_to_launch() {
  if (!graph_ || !graph_->ready() || !operations_.can_be_recorded(ops_)) return false;
  operations_.renew(ops_);
  if (!recorded_) {
    if (!record()) return false;
  } else if (addresses() == addresses_) {
    operations_.frame().make(changes_);
  } else {
    return false;
  }
  operations_.launch(ops_, *graph_);
  return true;
}

bool GraphSegment::record() {
  Frame& frame = operations_.frame();
  std::vector<const void*> addresses_now = addresses();
  const Frame::State before = frame.state();
  frame.recording = true;
  recorded_ = graph_->record([&] {
    for (const OpId op : ops_) {
      operations_.record(op);
      for (const BufferId buffer : freed_[op.index() - ops_.first.index()]) frame.release(buffer);
    }
  });
  frame.recording = false;
  if (recorded_) {
    addresses_ = std::move(addresses_now);
    changes_ = frame.changes_since(before);
  } else {
    frame.go_back(before);
    graph_.reset();
  }
  return recorded_;
}

std::vector<const void*> GraphSegment::addresses() const {
  std::vector<const void*> out;
  for (const BufferId buffer : touched_) {
    const at::Tensor& tensor = operations_.frame()[buffer];
    out.push_back(tensor.defined() ? tensor.const_data_ptr() : nullptr);
  }
  return out;
}

std::vector<IdRange<OpId>> find_segments(const PlanTemplate& program, const FreeOrder& frees) {
  const Table<OpId, PlannedOp>& ops = program.ops;
  std::vector<IdRange<OpId>> out;
  OpId begin{0};
  const auto close = [&](OpId end) {
    if (begin < end) out.push_back({begin, end});
    begin = end;
  };
  for (const OpId i : ops.ids()) {
    if (begin < i && (!ops[i].waits.empty() || !frees.loaders[i].empty() || ops[i].stream != ops[begin].stream))
      close(i);
    if (ops[i].kind != OpKind::Run) {
      close(i);
      begin = OpId(i.value + 1);
    } else if (std::ranges::any_of(frees.frees[i], [&](const BufferFree& free) {
                 return !free.after.empty() || free.stream != ops[i].stream;
               })) {
      close(OpId(i.value + 1));
    }
  }
  close(OpId(ops.size()));
  return out;
}

}  // namespace piper
