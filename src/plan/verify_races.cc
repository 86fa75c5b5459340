#include <fmt/format.h>

#include "plan/stream_clocks.h"
#include "plan/verify_plan.h"

namespace piper {
namespace {

/// Who touched a buffer: its last writer, and its readers since, the last of every stream.
struct Uses {
  int writer = -1;
  std::vector<int> readers;
  int freed_by = -1;
};

Diagnostic race(const Plan& plan, const PlanTemplate& of, int buffer, int earlier, int later) {
  return error(ErrorCode::E403, {},
               fmt::format("{} and {} touch {} and nothing orders them", describe(plan, of, earlier),
                           describe(plan, of, later), describe(plan, of.buffers[static_cast<size_t>(buffer)].label)))
      .help(fmt::format("op {} must wait for op {}", later, earlier));
}

Checked order_of_uses(const Plan& plan, const PlanTemplate& of) {
  StreamClocks clocks(plan, of);
  std::vector<Uses> uses(of.buffers.size());
  for (size_t i = 0; i < of.ops.size(); ++i) {
    const int op = static_cast<int>(i);
    const PlannedOp& self = of.ops[i];
    clocks.begin(op);
    for (const int wait : self.waits) clocks.merge(op, wait);
    for (const auto* list : {&self.reads, &self.writes})
      for (const int b : *list)
        if (const Uses& u = uses[static_cast<size_t>(b)]; u.freed_by >= 0)
          return error(ErrorCode::E404, {},
                       fmt::format("{} uses {} after it was freed", describe(plan, of, op),
                                   describe(plan, of.buffers[static_cast<size_t>(b)].label)))
              .note({}, fmt::format("freed by {}", describe(plan, of, u.freed_by)))
              .help(fmt::format("free it in op {} or later", op));
    for (const int b : self.reads)
      if (const Uses& u = uses[static_cast<size_t>(b)]; u.writer >= 0 && !clocks.knows(op, u.writer))
        return race(plan, of, b, u.writer, op);
    for (const int b : self.writes) {
      const Uses& u = uses[static_cast<size_t>(b)];
      if (u.writer >= 0 && !clocks.knows(op, u.writer)) return race(plan, of, b, u.writer, op);
      for (const int reader : u.readers)
        if (!clocks.knows(op, reader)) return race(plan, of, b, reader, op);
    }
    for (const int b : self.reads) {
      auto& readers = uses[static_cast<size_t>(b)].readers;
      std::erase_if(readers, [&](int r) { return of.ops[static_cast<size_t>(r)].stream == self.stream; });
      readers.push_back(op);
    }
    for (const int b : self.writes) uses[static_cast<size_t>(b)] = {op, {}, -1};
    for (const int b : self.frees) uses[static_cast<size_t>(b)].freed_by = op;
  }
  return Ok{};
}

}  // namespace

Checked verify_races(const Plan& plan) {
  for (const PlanTemplate& t : plan.templates) PIPER_CHECK(order_of_uses(plan, t));
  return Ok{};
}

}  // namespace piper
