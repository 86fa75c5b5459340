#include <fmt/format.h>

#include "plan/issue_order_memory.h"
#include "plan/stream_clocks.h"
#include "plan/verify_plan.h"

namespace piper {
namespace {

Checked order_of_bytes(const Plan& plan, const PlanTemplate& of) {
  StreamClocks clocks(plan, of);
  IssueOrderMemory memory(plan, of, clocks);
  for (const OpId op : of.ops.ids()) {
    clocks.begin(op);
    for (const OpId wait : of.ops[op].waits) clocks.merge(op, wait);
    if (const auto missing = memory.missing(op); !missing.empty())
      return error(ErrorCode::E406, {},
                   fmt::format("{} takes bytes last used by another stream without waiting for it",
                               describe(plan, of, op)))
          .note({}, fmt::format("last used by {}", describe(plan, of, missing[0])))
          .help(fmt::format("op {} must wait for op {}", op.value, missing[0].value));
    memory.issue(op);
  }
  return Ok{};
}

}  // namespace

Checked verify_memory_order(const Plan& plan) {
  for (const PlanTemplate& t : plan.templates) PIPER_CHECK(order_of_bytes(plan, t));
  return Ok{};
}

Checked verify(const Plan& plan) {
  PIPER_CHECK(verify_structure(plan));
  PIPER_CHECK(verify_matching(plan));
  PIPER_CHECK(verify_rounds(plan));
  PIPER_CHECK(verify_collective_order(plan));
  PIPER_CHECK(verify_deadlock(plan));
  PIPER_CHECK(verify_races(plan));
  return verify_memory_order(plan);
}

}  // namespace piper
