#include <fmt/format.h>

#include "plan/byte_pool.h"
#include "plan/stream_clocks.h"
#include "plan/verify_plan.h"

namespace piper {
namespace {

Checked verify_template(const Plan& plan, const PlanTemplate& of) {
  const IssueOrderUse use = issue_order_use(of);
  const auto takes = first_touches(of);
  BytePool pool(use.peak - use.persistent);
  StreamClocks clocks(plan, of);
  std::vector<std::vector<int>> users(of.buffers.size());  // the last on every stream
  for (size_t i = 0; i < of.ops.size(); ++i) {
    const int op = static_cast<int>(i);
    const PlannedOp& self = of.ops[i];
    clocks.begin(op);
    for (const int wait : self.waits) clocks.merge(op, wait);
    int64_t bytes = self.temporaries;
    for (const int b : takes[i]) bytes += of.buffers[static_cast<size_t>(b)].bytes;
    const auto knows = [&](int earlier) { return clocks.knows(op, earlier); };
    if (bytes > 0) {
      if (const auto missing = pool.missing(bytes, knows); !missing.empty())
        return error(ErrorCode::E406, {}, fmt::format("{} takes bytes last used by another stream without waiting for it", describe(plan, of, op)))
            .note({}, fmt::format("last used by {}", describe(plan, of, missing[0])))
            .help(fmt::format("op {} must wait for op {}", op, missing[0]));
      pool.take(bytes, knows);
    }
    for (const auto* list : {&self.reads, &self.writes}) {
      for (const int b : *list) {
        auto& last = users[static_cast<size_t>(b)];
        std::erase_if(last, [&](int u) { return of.ops[static_cast<size_t>(u)].stream == self.stream; });
        last.push_back(op);
      }
    }
    pool.give_back({self.temporaries, {op}});
    for (const int b : self.frees) pool.give_back({of.buffers[static_cast<size_t>(b)].bytes, users[static_cast<size_t>(b)]});
  }
  return Ok{};
}

}  // namespace

Checked verify_memory_order(const Plan& plan) {
  for (const PlanTemplate& t : plan.templates) PIPER_CHECK(verify_template(plan, t));
  return Ok{};
}

Checked verify(const Plan& plan) {
  PIPER_CHECK(verify_structure(plan));
  PIPER_CHECK(verify_matching(plan));
  PIPER_CHECK(verify_collective_order(plan));
  PIPER_CHECK(verify_deadlock(plan));
  PIPER_CHECK(verify_races(plan));
  return verify_memory_order(plan);
}

}  // namespace piper
