// What an OperatorGraph needs of libtorch to be executed.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "capture/record/operator_graph.h"

namespace piper {

struct OperatorTable {
  std::vector<c10::OperatorHandle> operators;  // by OperatorId
  std::vector<c10::IValue> opaque;             // by Opaque::index
  std::vector<at::Tensor> constants;           // by GraphTensor::constant
  c10::DeviceType target = c10::kCPU;          // what the graph will run on: results may look different elsewhere
};

TensorLayout layout_of(const at::Tensor& tensor);
/// All of its storage, without gaps.
bool is_whole(const at::Tensor& tensor);
/// A fresh tensor with this layout, at offset 0.
at::Tensor empty_tensor(const TensorLayout& layout, c10::Device device);

/// `aten::mm`, `aten::add.Tensor`
std::string full_name(const c10::OperatorHandle& op);

/// A constant where it is used. Single numbers stay where they are: every operator takes them.
at::Tensor placed_constant(const OperatorTable& table, int constant, c10::Device device);

/// The value of an argument that is not a tensor; `device` stands for the target device.
c10::IValue to_ivalue(const OperatorTable& table, const Argument& argument, c10::Device device);

}  // namespace piper
