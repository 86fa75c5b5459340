#include <fmt/format.h>

#include "plan/verify_plan.h"

namespace piper {
namespace {

/// Who wrote a buffer last, in issue order.
using Writers = Table<BufferId, OpId>;

/// The operation that told the device how many rows everybody has: the one writer of a buffer that it reads.
OpId counts_of(const Plan& plan, const PlanTemplate& of, const PlannedOp& op, const Writers& writers) {
  const Communication& mine = plan.communications[op.communication];
  for (const BufferId buffer : op.reads) {
    const OpId writer = writers[buffer];
    if (!writer.valid() || of.ops[writer].kind != OpKind::AllGather) continue;
    const Communication& gather = plan.communications[of.ops[writer].communication];
    if (gather.over == mine.over && gather.buffer == mine.buffer) return writer;
  }
  return {};
}

}  // namespace

Checked verify_rounds(const Plan& plan) {
  Table<CommunicationId, CommunicationId> counts(plan.communications.size());  // by exchange of rows: its gather
  for (const PlanTemplate& t : plan.templates) {
    Writers writers(t.buffers.size());
    for (const OpId i : t.ops.ids()) {
      const PlannedOp& op = t.ops[i];
      const bool rows =
          op.communication.valid() && plan.communications[op.communication].buffer > 0 && op.kind != OpKind::AllGather;
      if (rows || op.kind == OpKind::Rounds) {
        const OpId gather = counts_of(plan, t, op, writers);
        const auto refuse = [&](std::string_view what) {
          return error(ErrorCode::E407, {}, fmt::format("{} {}", describe(plan, t, i), what))
              .help("all members of an exchange of rows read the counts that one all_gather among them has brought");
        };
        if (!gather.valid()) return refuse("does not read how many rows its members have");
        CommunicationId& known = counts[op.communication];
        if (known.valid() && known != t.ops[gather].communication)
          return refuse("reads other counts than other members, so they would make other numbers of rounds");
        known = t.ops[gather].communication;
      }
      for (const BufferId buffer : op.writes) writers[buffer] = i;
    }
  }
  return Ok{};
}

}  // namespace piper
