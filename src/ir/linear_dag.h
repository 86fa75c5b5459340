// The DAG with one order of all its nodes.
#pragma once

#include "ir/training_dag.h"

namespace piper {

/// Every device issues its nodes in this order. The times behind it also say when bytes come back.
struct LinearDag {
  TrainingDag dag;
  std::vector<NodeId> order;
  std::vector<double> start, end;  // seconds, by node, as the costs had it
};

}  // namespace piper
