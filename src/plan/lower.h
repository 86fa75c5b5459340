// From the ordered DAG to one plan per class of devices.
#pragma once

#include "cost/cluster.h"
#include "ir/training_dag.h"
#include "plan/plan.h"

namespace piper {

/// Every device gets the operations of its nodes in this order, with buffers, frees and the waits they need.
Plan lower(const TrainingDag& dag, const std::vector<NodeId>& order, const Cluster& cluster);

}  // namespace piper
