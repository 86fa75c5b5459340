// Tensor parallelism: which calls of a recorded graph work on divided tensors, once some parameters are cut.
//
// Seeds are dimensions of parameters. All else follows by unification over forward and backward. Calls that touch a
// divided tensor become regions of their own, scopes `cut` inside the scopes that were annotated, so that what leaves
// them, a part of a sum on each device, can be added up at their border. A region begins with the first such call and
// ends where a sum must be complete.
#pragma once

#include "base/result.h"
#include "capture/label_rules.h"
#include "schedule/cut_seed.h"

namespace piper {

struct CutGraph {
  OperatorGraph graph;
  std::vector<TensorLabels> labels;  // by tensor
};
/// Refused (E317): no such parameter or dimension; operators that mix what would lie on different devices.
Result<CutGraph> mark_cut_regions(OperatorGraph graph, const std::vector<CutSeed>& seeds);

}  // namespace piper
