#include "runtime/memory_order.h"

#include <algorithm>
#include <map>

namespace piper {

bool sends_to_itself(const PlanTemplate& program, OpId op) {
  const OpId behind(op.value + 1);
  if (!program.ops.contains(behind)) return false;
  const PlannedOp &one = program.ops[op], &next = program.ops[behind];
  return one.kind == OpKind::Send && next.kind == OpKind::Recv && one.communication == next.communication;
}

MemoryOrder order_memory(const PlanTemplate& program, bool inputs_are_there) {
  struct Uses {
    OpId first;
    bool written = false;
    std::map<PlanStreamId, OpId> last;
  };
  MemoryOrder out;
  out.loaders.resize(program.ops.size());
  out.releases.resize(program.ops.size());
  Table<BufferId, Uses> all(program.buffers.size());
  for (const OpId i : program.ops.ids()) {
    const PlannedOp& op = program.ops[i];
    for (const BufferId b : op.writes) all[b].written = true;
    for (const auto* list : {&op.reads, &op.writes})
      for (const BufferId b : *list) {
        Uses& uses = all[b];
        if (!uses.first.valid()) uses.first = i;
        uses.last[op.stream] = i;
        const bool input = !uses.written && !program.buffers[b].persistent;
        if (input && !inputs_are_there && program.ops[uses.first].stream != op.stream)
          out.loaders[i].push_back(uses.first);
      }
    for (const BufferId b : op.frees) {
      const Uses& uses = all[b];
      const PlanStreamId stream = program.ops[uses.first].stream;
      std::vector<BufferRelease>& releases = out.releases[i];
      auto release =
          std::find_if(releases.begin(), releases.end(), [&](const BufferRelease& r) { return r.stream == stream; });
      if (release == releases.end()) release = releases.insert(release, {stream, {}, {}});
      release->buffers.push_back(b);
      for (const auto& [user, last] : uses.last)
        if (user != stream || program.ops[last].kind == OpKind::Send) release->awaited.push_back(last);
    }
  }
  for (const OpId i : program.ops.ids())
    if (sends_to_itself(program, i)) {
      auto &here = out.releases[i], &behind = out.releases[OpId(i.value + 1)];
      behind.insert(behind.begin(), here.begin(), here.end());
      here.clear();
    }
  return out;
}

Table<OpId, char> awaited_operations(const PlanTemplate& program, const MemoryOrder& order) {
  Table<OpId, char> out(program.ops.size(), 0);
  const auto note = [&](const std::vector<OpId>& ops) {
    for (const OpId op : ops) out[op] = 1;
  };
  for (const OpId i : program.ops.ids()) {
    if (is_communication(program.ops[i].kind)) out[i] = 1;
    note(program.ops[i].waits);
    note(order.loaders[i]);
    for (const BufferRelease& release : order.releases[i]) note(release.awaited);
  }
  return out;
}

}  // namespace piper
