// Which results of a sharded body are terms of sums, of which every device has its own (`Partial`).
#pragma once

#include "capture/sharding/label_rules.h"

namespace piper {

/// How many factors have it.
int count_marks(const TensorLabels& labels, Mark mark);

/// Whether the call adds up (or takes the greatest) over a dimension with this mark that the result does not have.
bool sums_over(const OperatorGraph& graph, const BodyLabels& labels, const Call& call, TensorId result, Mark mark);

/// Whether what it takes over a dimension is the greatest, not the sum.
bool is_maximum(const OperatorGraph& graph, const Call& call);

/// Whether the operator is linear in the one (or in all) of its arguments that are partial sums.
bool keeps_partial_sums(const OperatorGraph& graph, const std::vector<GraphTensor>& tensors, const BodyLabels& labels,
                        const Call& call);

}  // namespace piper
