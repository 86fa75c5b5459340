#include "plan/free_order.h"

#include <algorithm>
#include <map>

namespace piper {
namespace {

/// Of a buffer, so far.
struct BufferUses {
  OpId first;
  bool written = false;
  std::map<PlanStreamId, OpId> last;
};

void add(std::vector<BufferFree>& frees, BufferId buffer, const BufferUses& uses, const Table<OpId, PlannedOp>& ops) {
  const PlanStreamId stream = ops[uses.first].stream;
  auto free = std::ranges::find(frees, stream, &BufferFree::stream);
  if (free == frees.end()) free = frees.insert(free, {stream, {}, {}});
  free->buffers.push_back(buffer);
  for (const auto& [user, last] : uses.last)
    if (user != stream || ops[last].kind == OpKind::Send) free->after.push_back(last);
}

}  // namespace

FreeOrder frees_to_pool(const PlanTemplate& program) {
  FreeOrder out;
  out.loaders.resize(program.ops.size());
  for (const PlannedOp& op : program.ops) {
    std::vector<BufferFree>& frees = out.frees.emplace_back();
    if (!op.frees.empty()) frees.push_back({{}, {}, op.frees});
  }
  return out;
}

FreeOrder frees_by_stream(const PlanTemplate& program, bool inputs_are_there) {
  FreeOrder out;
  out.loaders.resize(program.ops.size());
  out.frees.resize(program.ops.size());
  Table<BufferId, BufferUses> all(program.buffers.size());
  for (const OpId i : program.ops.ids()) {
    const PlannedOp& op = program.ops[i];
    for (const BufferId b : op.writes) all[b].written = true;
    for (const auto* list : {&op.reads, &op.writes})
      for (const BufferId b : *list) {
        BufferUses& uses = all[b];
        if (!uses.first.valid()) uses.first = i;
        uses.last[op.stream] = i;
        const bool input = !uses.written && !program.buffers[b].persistent;
        if (input && !inputs_are_there && program.ops[uses.first].stream != op.stream)
          out.loaders[i].push_back(uses.first);
      }
    for (const BufferId b : op.frees) add(out.frees[i], b, all[b], program.ops);
  }
  return out;
}

}  // namespace piper
