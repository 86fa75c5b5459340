// Collectives of a DAG, and the operations of a plan that they become.
#pragma once

#include <vector>

#include "cost/collective.h"
#include "plan/plan.h"

namespace piper {

OpKind op_of(CollectiveKind kind);
/// Of an operation that is a collective.
CollectiveKind collective_of(OpKind kind);

/// By communication, as its operations say; for a transfer, Send or Recv.
Table<CommunicationId, OpKind> kinds_of_communications(const Plan& plan);

}  // namespace piper
