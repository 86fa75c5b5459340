#include "capture/record/rewritten_calls.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <unordered_map>

#include "capture/experts/grouped_mm.h"

namespace piper {
namespace {

/// Numbers of `bincount` are whole, or double unless their weights are float.
at::Tensor weights_of(const at::Tensor& counted, const c10::IValue& given) {
  if (!given.isTensor() || !given.toTensor().defined())
    return at::ones_like(counted, counted.options().dtype(at::kLong));
  const at::Tensor& weights = given.toTensor();
  return weights.scalar_type() == at::kFloat ? weights : weights.to(at::kDouble);
}

at::Tensor count(const at::Tensor& numbers, const c10::IValue& weights, int64_t length) {
  const at::Tensor counted = numbers.to(at::kLong), weighed = weights_of(counted, weights);
  return at::zeros({length}, weighed.options()).scatter_add(0, counted, weighed);
}

/// What is joined, without what has no elements; the same list where that changes nothing, or the type of the result.
std::vector<at::Tensor> with_elements(const std::vector<at::Tensor>& joined) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& part : joined) {
    if (part.scalar_type() != joined[0].scalar_type()) return joined;
    if (part.numel() > 0) out.push_back(part);
  }
  return out.empty() ? joined : out;
}

/// Rows in groups, and nothing besides.
bool is_of_rows(const c10::OperatorHandle& op, const c10::IValue* arguments) {
  if (op.operator_name().name != "aten::_grouped_mm" || arguments[0].toTensor().dim() != 2) return false;
  const auto absent = [&](size_t i) { return arguments[i].isNone(); };
  const bool same_type = absent(4) || arguments[4].toScalarType() == arguments[0].toTensor().scalar_type();
  return !absent(2) && absent(3) && same_type && arguments[0].toTensor().size(1) == arguments[1].toTensor().size(-2);
}

}  // namespace

bool rewrite_call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::string_view name = op.operator_name().name;
  const size_t base = stack.size() - op.schema().arguments().size();
  at::Tensor result;
  if (name == "aten::bincount" && stack[base + 2].toInt() > 0)
    result = count(stack[base].toTensor(), stack[base + 1], stack[base + 2].toInt());
  else if (name == "aten::as_strided_copy" && op.schema().returns().size() == 1 && stack.size() - base == 4)
    result = at::as_strided(stack[base].toTensor(), stack[base + 1].toIntVector(), stack[base + 2].toIntVector(),
                            stack[base + 3].toOptional<int64_t>())
                 .clone();
  else if (is_of_rows(op, &stack[base]))
    result = grouped_mm(stack[base].toTensor(), stack[base + 1].toTensor(), stack[base + 2].toTensor());
  else if (name == "aten::slice_backward" && stack[base].toTensor().numel() == 0)
    result = at::zeros(stack[base + 1].toIntVector(), stack[base].toTensor().options());
  else if (name == "aten::cat" && op.operator_name().overload_name.empty()) {
    const std::vector<at::Tensor> joined = stack[base].toTensorVector(), parts = with_elements(joined);
    if (parts.size() == joined.size()) return false;
    result = at::cat(parts, stack[base + 1].toInt());
  } else
    return false;
  stack.resize(base);
  stack.emplace_back(result);
  return true;
}

std::string_view instead_of(const c10::OperatorHandle& op) {
  static const std::unordered_map<std::string_view, std::string_view> known = {
      {"aten::bincount", "say how many numbers there are: torch::bincount(x, minlength=n)"},
      {"aten::nonzero",
       "say how many there are: torch::nonzero_static(x, size=n); or multiply by the mask, or use a "
       "fixed number of slots"},
  };
  const auto found = known.find(op.operator_name().name);
  if (found != known.end()) return found->second;
  return "instead of a branch on item(): torch::where on both results; instead of a mask as index or nonzero(): "
         "multiply by the mask, or use a fixed number of slots";
}

}  // namespace piper
