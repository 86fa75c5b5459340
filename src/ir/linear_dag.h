// The DAG with one order of all its nodes.
#pragma once

#include "ir/training_dag.h"

namespace piper {

/// Every device issues its nodes in this order. The times that it was made from also say when memory is freed.
struct LinearDag {
  TrainingDag dag;
  std::vector<NodeId> order;
  std::vector<double> start, end;  // by node, in seconds, by the costs
};

}  // namespace piper
