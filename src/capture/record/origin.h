// What a tensor of a recording was computed from.
#pragma once

#include <optional>
#include <vector>

#include "capture/record/operator_table.h"

namespace piper {

struct TensorOrigin {
  std::vector<CallId> calls;  // all that it takes to compute it, in their order
  bool inputs = false;        // their values matter
  bool parameters = false;    // and buffers
  bool random = false;
};

/// By storages, so it may name more than is needed, never less.
TensorOrigin origin_of(const OperatorGraph& graph, TensorId tensor);

/// Its values, if they follow from the model's code alone: computed here.
std::optional<at::Tensor> fixed_values(const OperatorGraph& graph, const OperatorTable& table, TensorId tensor);

}  // namespace piper
