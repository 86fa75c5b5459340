#include "capture/record/operator_table.h"

#include <ATen/ops/empty_strided.h>

#include "base/invariant.h"
#include "base/overloaded.h"

namespace piper {

TensorLayout layout_of(const at::Tensor& tensor) {
  return {static_cast<int8_t>(tensor.scalar_type()), static_cast<int64_t>(tensor.element_size()), tensor.sizes().vec(),
          tensor.strides().vec(), tensor.storage_offset()};
}

bool is_whole(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.storage().nbytes() == static_cast<size_t>(tensor.numel()) * tensor.element_size();
}

at::Tensor empty_tensor(const TensorLayout& layout, c10::Device device) {
  return at::empty_strided(layout.sizes, layout.strides,
                           at::TensorOptions(device).dtype(static_cast<c10::ScalarType>(layout.element)));
}

std::string full_name(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

at::Tensor placed_constant(const OperatorTable& table, int constant, c10::Device device) {
  const at::Tensor& here = table.constants[static_cast<size_t>(constant)];
  return here.dim() == 0 ? here : here.to(device);
}

c10::IValue to_ivalue(const OperatorTable& table, const Argument& argument, c10::Device device) {
  return std::visit(overloaded{
                        [](None) { return c10::IValue(); },
                        [](bool value) { return c10::IValue(value); },
                        [](int64_t value) { return c10::IValue(value); },
                        [](double value) { return c10::IValue(value); },
                        [](const Ints& values) { return c10::IValue(values); },
                        [](const Bools& values) {
                          c10::List<bool> list;
                          for (const bool value : values) list.push_back(value);
                          return c10::IValue(std::move(list));
                        },
                        [&](Opaque value) { return table.opaque[static_cast<size_t>(value.index)]; },
                        [&](TargetDevice) { return c10::IValue(device); },
                        [](PartStart) { return c10::IValue(int64_t{0}); },
                        [](TensorId) -> c10::IValue { internal_error("a tensor is not a constant argument"); },
                        [](const TensorList&) -> c10::IValue { internal_error("a list is not a constant argument"); },
                    },
                    argument);
}

}  // namespace piper
