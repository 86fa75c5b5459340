#include "capture/record/gpu_calls.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout_backward.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace piper {
namespace {

using c10::IValue;
using torch::jit::Stack;

/// The argument with a name; none: the operator has no such.
IValue* find(const c10::OperatorHandle& op, Stack& stack, std::string_view name) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name() == name) return &stack[stack.size() - arguments.size() + i];
  return nullptr;
}

/// The mask is drawn by a call that takes a generator. With it a product is the same forward and backward.
void drop(const c10::OperatorHandle& op, Stack& stack) {
  const at::Tensor input = find(op, stack, "input")->toTensor();
  const double rate = find(op, stack, "p")->toDouble();
  const at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - rate);
  const at::Tensor kept = at::native_dropout_backward(input, mask, rate == 1 ? 0 : 1 / (1 - rate));
  stack.resize(stack.size() - op.schema().arguments().size());
  stack.emplace_back(kept);
  stack.emplace_back(mask);
}

void give_unused_state(const c10::OperatorHandle& op, Stack& stack, bool flash) {
  const at::TensorOptions like = find(op, stack, "query")->toTensor().options();
  const at::TensorOptions numbers = like.dtype(flash ? at::kUInt64 : at::kLong);
  if (flash)
    *find(op, stack, "philox_seed") = at::empty({2}, numbers);
  else
    *find(op, stack, "philox_seed") = at::empty({}, numbers);
  *find(op, stack, "philox_offset") = at::empty({}, numbers);
}

void order_like_result(const c10::OperatorHandle& op, Stack& stack) {
  IValue& gradient = *find(op, stack, "grad_out");
  const at::Tensor out = find(op, stack, "out")->toTensor();
  if (gradient.toTensor().strides() == out.strides()) return;
  gradient = at::empty_like(out).copy_(gradient.toTensor());
}

}  // namespace

bool rewrite_dropout(const c10::OperatorHandle& op, Stack& stack) {
  if (op.operator_name().name != "aten::native_dropout") return false;
  const IValue& train = *find(op, stack, "train");
  if (train.isBool() && !train.toBool()) return false;
  drop(op, stack);
  return true;
}

void complete_gpu_call(const c10::OperatorHandle& op, Stack& stack) {
  const std::string_view name = op.operator_name().name;
  const bool flash = name == "aten::_scaled_dot_product_flash_attention_backward",
             cudnn = name == "aten::_scaled_dot_product_cudnn_attention_backward",
             efficient = name == "aten::_scaled_dot_product_efficient_attention_backward";
  if (flash || cudnn || efficient) give_unused_state(op, stack, flash);
  if (cudnn) order_like_result(op, stack);
}

void forget_random_state(const c10::OperatorHandle& op, Stack& stack) {
  static constexpr std::array state = {std::string_view("rng_state"), std::string_view("unused"),
                                       std::string_view("philox_seed"), std::string_view("philox_offset"),
                                       std::string_view("debug_attn_mask")};
  const auto& returns = op.schema().returns();
  for (size_t i = 0; i < returns.size(); ++i)
    if (std::find(state.begin(), state.end(), returns[i].name()) != state.end())
      stack[stack.size() - returns.size() + i] = at::Tensor();
}

}  // namespace piper
