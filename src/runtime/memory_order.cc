#include "runtime/memory_order.h"

#include <algorithm>
#include <map>

namespace piper {

bool sends_to_itself(const PlanTemplate& program, size_t op) {
  if (op + 1 >= program.ops.size()) return false;
  const PlannedOp &one = program.ops[op], &next = program.ops[op + 1];
  return one.kind == OpKind::Send && next.kind == OpKind::Recv && one.communication == next.communication;
}

MemoryOrder order_memory(const PlanTemplate& program, bool inputs_are_there) {
  struct Uses {
    int first = -1;
    bool written = false;
    std::map<int, int> last;  // by stream
  };
  MemoryOrder out{std::vector<std::vector<int>>(program.ops.size()),
                  std::vector<std::vector<BufferRelease>>(program.ops.size())};
  std::vector<Uses> all(program.buffers.size());
  const auto op_at = [&](int op) -> const PlannedOp& { return program.ops[static_cast<size_t>(op)]; };
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const PlannedOp& op = program.ops[i];
    for (const int b : op.writes) all[static_cast<size_t>(b)].written = true;
    for (const auto* list : {&op.reads, &op.writes})
      for (const int b : *list) {
        Uses& uses = all[static_cast<size_t>(b)];
        if (uses.first < 0) uses.first = static_cast<int>(i);
        uses.last[op.stream] = static_cast<int>(i);
        const bool input = !uses.written && !program.buffers[static_cast<size_t>(b)].persistent;
        if (input && !inputs_are_there && op_at(uses.first).stream != op.stream) out.loaders[i].push_back(uses.first);
      }
    for (const int b : op.frees) {
      const Uses& uses = all[static_cast<size_t>(b)];
      const int stream = op_at(uses.first).stream;
      std::vector<BufferRelease>& releases = out.releases[i];
      auto release =
          std::find_if(releases.begin(), releases.end(), [&](const BufferRelease& r) { return r.stream == stream; });
      if (release == releases.end()) release = releases.insert(release, {stream, {}, {}});
      release->buffers.push_back(b);
      for (const auto& [user, last] : uses.last)
        if (user != stream || op_at(last).kind == OpKind::Send) release->awaited.push_back(last);
    }
  }
  for (size_t i = 0; i < program.ops.size(); ++i)
    if (sends_to_itself(program, i)) {
      out.releases[i + 1].insert(out.releases[i + 1].begin(), out.releases[i].begin(), out.releases[i].end());
      out.releases[i].clear();
    }
  return out;
}

std::vector<char> awaited_operations(const PlanTemplate& program, const MemoryOrder& order) {
  std::vector<char> out(program.ops.size(), 0);
  const auto note = [&](const std::vector<int>& ops) {
    for (const int op : ops) out[static_cast<size_t>(op)] = 1;
  };
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (is_communication(program.ops[i].kind)) out[i] = 1;
    note(program.ops[i].waits);
    note(order.loaders[i]);
    for (const BufferRelease& release : order.releases[i]) note(release.awaited);
  }
  return out;
}

}  // namespace piper
