// What the rules say about results, sizes, strides and types, is what the kernels of the CPU give, however arguments
// lie in memory.
#include "capture/record/shape_rules.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

namespace piper {
namespace {

using c10::IValue;
using torch::jit::Stack;

/// The tensor as the rules see it.
IValue without_numbers(const IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return value;
  const at::Tensor& tensor = value.toTensor();
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

std::string layout(const IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return "-";
  const at::Tensor& tensor = value.toTensor();
  return fmt::format("{} {} {}", tensor.sizes(), tensor.strides(), c10::toString(tensor.scalar_type()));
}

/// What the kernel gives, for others that take it.
Stack expect_right(const char* name, const char* overload, const Stack& arguments) {
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  const ShapeRule rule = shape_rule(*overload ? fmt::format("{}.{}", name, overload) : name, c10::kCPU);
  Stack given = arguments, said;
  for (const IValue& argument : arguments) said.push_back(without_numbers(argument));
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  op.callBoxed(&given);
  rule(op, said);
  EXPECT_EQ(said.size(), given.size()) << name;
  for (size_t i = 0; i < given.size(); ++i) {
    std::string of;
    for (const IValue& argument : arguments) of += layout(argument) + ", ";
    EXPECT_EQ(layout(said[i]), layout(given[i])) << name << " on " << of;
  }
  return given;
}

/// Sizes [2, 3, 5, 4] in several orders in memory, and with gaps.
std::vector<at::Tensor> laid_out() {
  const std::vector<int64_t> sizes = {2, 3, 5, 4};
  std::vector<at::Tensor> out;
  for (const std::vector<int64_t>& order :
       std::vector<std::vector<int64_t>>{{0, 1, 2, 3}, {0, 2, 1, 3}, {2, 0, 1, 3}, {1, 0, 2, 3}})
    for (const int64_t gap : {0, 3}) {
      std::vector<int64_t> stored(4), place(4);
      for (size_t i = 0; i < 4; ++i) {
        stored[i] = sizes[static_cast<size_t>(order[i])];
        place[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
      }
      stored[3] += gap;
      out.push_back(at::rand(stored, at::kDouble).narrow(3, 0, sizes[3]).permute(place));
    }
  return out;
}

TEST(ShapeRules, OfAttentionAreWhatKernelsGive) {
  for (const at::Tensor& query : laid_out())
    for (const at::Tensor& key : laid_out())
      for (const at::Tensor& value : {key, query}) {
        const Stack made = expect_right("aten::_scaled_dot_product_flash_attention_for_cpu", "",
                                        {query, key, value, 0.0, true, IValue(), IValue()});
        for (const at::Tensor& gradient : {query, made[0].toTensor()})
          expect_right("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "",
                       {gradient, query, key, value, made[0], made[1], 0.0, true, IValue(), IValue()});
      }
}

TEST(ShapeRules, OfOthersAreWhatKernelsGive) {
  const at::Tensor scale = at::ones({4}, at::kDouble), number = at::zeros({}, at::kDouble);
  const at::Tensor indices = at::arange(2), two = at::zeros({3, 2}, at::kLong).t();
  for (const at::Tensor& x : laid_out()) {
    for (const at::Tensor& y : laid_out()) {
      expect_right("aten::where", "self", {y.gt(0.5), x, y});
      const Stack normed =
          expect_right("aten::native_layer_norm", "", {x, std::vector<int64_t>{4}, scale, scale, 1e-5});
      expect_right(
          "aten::native_layer_norm_backward", "",
          {y, x, std::vector<int64_t>{4}, normed[1], normed[2], scale, scale, c10::List<bool>({true, true, true})});
    }
    expect_right("aten::where", "self", {at::ones({5, 4}, at::kBool), x, number});
    expect_right("aten::where", "self", {x.gt(0.5), number, number});
    expect_right("aten::flip", "", {x, std::vector<int64_t>{1}});
    expect_right("aten::relu", "", {x});
    expect_right("aten::roll", "", {x, std::vector<int64_t>{1}, std::vector<int64_t>{2}});
    for (const int64_t dim : {0, 2, 3}) expect_right("aten::index_select", "", {x, dim, indices});
    for (const char* whole : {"aten::max", "aten::min"}) expect_right(whole, "", {x});
    expect_right("aten::embedding", "", {x.select(0, 0).select(0, 0), two, -1, false, false});
    expect_right("aten::embedding_dense_backward", "",
                 {x.select(0, 0).narrow(0, 0, 2), at::zeros({2, 5}, at::kLong), 9, -1, false});
  }
}

}  // namespace
}  // namespace piper
