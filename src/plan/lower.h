// From the ordered DAG to one plan per class of devices.
#pragma once

#include "ir/linear_dag.h"
#include "plan/plan.h"

namespace piper {

/// Every device gets the operations of its nodes in this order, with buffers, frees and the waits they need. Bytes come
/// back when, by the costs behind the order, their last use has ended: so nobody waits for memory while the costs hold.
/// `costs`: their hash, a part of the plan's.
Plan lower(const LinearDag& linear, uint64_t costs);

}  // namespace piper
