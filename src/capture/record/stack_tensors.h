// The tensors of an operator's arguments or results, wherever they stand.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace piper {

/// Calls `f` with every tensor that is defined.
template <class F>
void each_tensor_of(const c10::IValue& value, F f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) f(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector())
      if (tensor.defined()) f(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor && tensor->defined()) f(*tensor);
  }
}

/// Replaces tensors, also those of a list, by what `f` makes of them.
template <class F>
void replace_tensors(c10::IValue& value, F f) {
  if (value.isTensor()) {
    value = f(value.toTensor());
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> list = value.toTensorVector();
    std::transform(list.begin(), list.end(), list.begin(), f);
    value = std::move(list);
  }
}

}  // namespace piper
