#include <fmt/format.h>

#include "plan/stream_clocks.h"
#include "plan/verify_plan.h"

namespace piper {
namespace {

/// Who touched a buffer: its last writer, and its readers since, the last of every stream.
struct Uses {
  OpId writer;
  std::vector<OpId> readers;
  OpId freed_by;
};

Diagnostic race(const Plan& plan, const PlanTemplate& of, BufferId buffer, OpId earlier, OpId later) {
  return error(ErrorCode::E403, {},
               fmt::format("{} and {} touch {} and nothing orders them", describe(plan, of, earlier),
                           describe(plan, of, later), describe(plan, of.buffers[buffer].label)))
      .help(fmt::format("op {} must wait for op {}", later.value, earlier.value));
}

Checked order_of_uses(const Plan& plan, const PlanTemplate& of) {
  StreamClocks clocks(plan, of);
  Table<BufferId, Uses> uses(of.buffers.size());
  for (const OpId op : of.ops.ids()) {
    const PlannedOp& self = of.ops[op];
    clocks.begin(op);
    for (const OpId wait : self.waits) clocks.merge(op, wait);
    for (const auto* list : {&self.reads, &self.writes})
      for (const BufferId b : *list)
        if (const Uses& u = uses[b]; u.freed_by.valid())
          return error(ErrorCode::E404, {},
                       fmt::format("{} uses {} after it was freed", describe(plan, of, op),
                                   describe(plan, of.buffers[b].label)))
              .note({}, fmt::format("freed by {}", describe(plan, of, u.freed_by)))
              .help(fmt::format("free it in op {} or later", op.value));
    for (const BufferId b : self.reads)
      if (const Uses& u = uses[b]; u.writer.valid() && !clocks.knows(op, u.writer))
        return race(plan, of, b, u.writer, op);
    for (const BufferId b : self.writes) {
      const Uses& u = uses[b];
      if (u.writer.valid() && !clocks.knows(op, u.writer)) return race(plan, of, b, u.writer, op);
      for (const OpId reader : u.readers)
        if (!clocks.knows(op, reader)) return race(plan, of, b, reader, op);
    }
    for (const BufferId b : self.reads) {
      auto& readers = uses[b].readers;
      std::erase_if(readers, [&](OpId r) { return of.ops[r].stream == self.stream; });
      readers.push_back(op);
    }
    for (const BufferId b : self.writes) uses[b] = {op, {}, {}};
    for (const BufferId b : self.frees) uses[b].freed_by = op;
  }
  return Ok{};
}

}  // namespace

Checked verify_races(const Plan& plan) {
  for (const PlanTemplate& t : plan.templates) PIPER_CHECK(order_of_uses(plan, t));
  return Ok{};
}

}  // namespace piper
