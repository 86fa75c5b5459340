// From the ordered DAG to one plan per class of devices.
#pragma once

#include "ir/linear_dag.h"
#include "plan/plan.h"

namespace piper {

/// Every device gets the operations of its nodes in this order, with buffers, frees and the waits they need. A buffer
/// is freed where, by the costs, its last use has ended: as long as the costs hold, no operation waits for memory.
/// `costs`: their hash, a part of the plan's.
Plan lower(const LinearDag& linear, uint64_t costs);

}  // namespace piper
