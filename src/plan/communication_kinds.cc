#include "plan/communication_kinds.h"

#include <algorithm>

#include "base/invariant.h"

namespace piper {
namespace {

constexpr OpKind ops[] = {OpKind::AllReduce, OpKind::ReduceScatter, OpKind::AllGather,
                          OpKind::AllToAll,  OpKind::ReducePieces,  OpKind::LocalSlice,
                          OpKind::Shift,     OpKind::Rounds};  // by CollectiveKind

}  // namespace

OpKind op_of(CollectiveKind kind) {
  return ops[static_cast<int>(kind)];
}

CollectiveKind collective_of(OpKind kind) {
  const auto* const found = std::find(std::begin(ops), std::end(ops), kind);
  invariant(found != std::end(ops), "a collective has one of the kinds above");
  return static_cast<CollectiveKind>(found - std::begin(ops));
}

Table<CommunicationId, OpKind> kinds_of_communications(const Plan& plan) {
  Table<CommunicationId, OpKind> kinds(plan.communications.size(), OpKind::Send);
  for (const PlanTemplate& t : plan.templates)
    for (const PlannedOp& op : t.ops)
      if (op.communication.valid()) kinds[op.communication] = op.kind;
  return kinds;
}

}  // namespace piper
