// Runs a training step on meta tensors and writes down every operator call.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "capture/operator_table.h"

namespace piper {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// A model as capture sees it: tensors on meta, and what computes the loss of a slice from the inputs.
struct MetaModel {
  std::vector<NamedTensor> parameters, buffers;
  std::function<at::Tensor(const std::vector<at::Tensor>& inputs)> loss;
};

struct Recording {
  OperatorGraph graph;
  OperatorTable table;
};

/// Forward and backward over the given inputs (meta tensors). Gradients are those of the loss, a scalar.
Result<Recording> record(const MetaModel& model, const std::vector<NamedTensor>& inputs);

/// Runs `build` so that every tensor it makes is a meta tensor: how a model of any size is constructed.
Checked build_on_meta(const std::function<void()>& build);

}  // namespace piper
