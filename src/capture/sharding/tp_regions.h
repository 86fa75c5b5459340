// Tensor parallelism: which calls of a recorded graph work on divided tensors, once some parameters are sharded.
//
// Seeds are dimensions of parameters. All else follows by unification over forward and backward. Calls that touch a
// divided tensor become regions of their own, scopes `tp` inside the scopes that were annotated, so that what leaves
// them, a part of a sum on each device, can be added up at their border. A region begins with the first such call and
// ends where a sum must be complete.
#pragma once

#include "base/result.h"
#include "capture/sharding/label_rules.h"
#include "model/shard_seed.h"

namespace piper {

struct ShardedGraph {
  OperatorGraph graph;
  std::vector<TensorLabels> labels;  // by tensor
};
/// Refused (E317): no such parameter or dimension; operators that mix what would lie on different devices.
Result<ShardedGraph> mark_tp_regions(OperatorGraph graph, const std::vector<ShardSeed>& seeds);

}  // namespace piper
