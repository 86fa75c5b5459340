// Tensors of a recording that can be computed before a step, on the host.
#pragma once

#include <map>
#include <vector>

#include "capture/record/operator_table.h"

namespace piper {

/// What it takes to compute a tensor as it is before some call, once some tensors are given.
struct Computable {
  TensorId tensor;
  std::vector<CallId> calls;     // in their order
  std::vector<TensorId> inputs;  // that must be given
};
Computable computable(const OperatorGraph& graph, TensorId tensor, CallId before,
                      const std::vector<TensorId>& given = {});

/// On the host. What is given may be written to.
at::Tensor compute(const OperatorGraph& graph, const OperatorTable& table, const Computable& what,
                   const std::map<TensorId, at::Tensor>& given);

}  // namespace piper
