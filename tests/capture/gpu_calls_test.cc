// What is recorded in the place of calls that PyTorch makes for a GPU. On a processor, whose operators do the same.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "capture/record/gpu_calls.h"

namespace piper {
namespace {

using torch::jit::Stack;

c10::OperatorHandle op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

TEST(GpuCalls, DropoutIsAMaskAndAProduct) {
  const at::Tensor x = at::arange(1, 10001).to(at::kDouble);
  Stack stack = {7, x, 0.25, true};  // what lies below stays
  ASSERT_TRUE(rewrite_dropout(op("aten::native_dropout"), stack));
  ASSERT_EQ(stack.size(), 3u);
  EXPECT_EQ(stack[0].toInt(), 7);
  const at::Tensor mask = stack[2].toTensor();
  ASSERT_EQ(mask.scalar_type(), at::kBool);
  EXPECT_NEAR(mask.to(at::kDouble).mean().item<double>(), 0.75, 0.03);
  EXPECT_TRUE(at::allclose(stack[1].toTensor(), x * mask / 0.75, 1e-14));
}

TEST(GpuCalls, DropoutThatDropsNothingIsLeftAlone) {
  Stack stack = {at::ones({4}), 0.25, false};
  EXPECT_FALSE(rewrite_dropout(op("aten::native_dropout"), stack));
  EXPECT_EQ(stack.size(), 3u);
}

at::Tensor heads() {
  return at::empty({2, 5, 3, 8}, at::TensorOptions(at::kMeta).dtype(at::kBFloat16)).transpose(1, 2);
}
/// Arguments of the backward of an attention, in their order; its gradient lies in another one than its result.
Stack arguments(const char* name) {
  Stack out;
  for (const c10::Argument& argument : op(name).schema().arguments()) {
    const std::string& what = argument.name();
    if (what == "query" || what == "key" || what == "value" || what == "out")
      out.emplace_back(heads());
    else if (what.starts_with("grad_out"))
      out.emplace_back(heads().contiguous());
    else if (what == "dropout_p")
      out.emplace_back(0.0);
    else
      out.emplace_back(at::Tensor());
  }
  return out;
}
at::Tensor named(const char* name, const Stack& stack, const char* what) {
  const auto& all = op(name).schema().arguments();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].name() == what) return stack[i].toTensor();
  return {};
}

TEST(GpuCalls, BackwardOfAttentionGetsAStateThatNobodyKept) {
  struct Kind {
    const char* name;
    at::ScalarType type;
    int64_t seeds;  // dimensions
  };
  for (const Kind& kind : {Kind{"aten::_scaled_dot_product_flash_attention_backward", at::kUInt64, 1},
                           Kind{"aten::_scaled_dot_product_efficient_attention_backward", at::kLong, 0},
                           Kind{"aten::_scaled_dot_product_cudnn_attention_backward", at::kLong, 0}}) {
    Stack stack = arguments(kind.name);
    const size_t count = stack.size();
    complete_gpu_call(op(kind.name), stack);
    ASSERT_EQ(stack.size(), count);
    for (const char* state : {"philox_seed", "philox_offset"}) {
      const at::Tensor given = named(kind.name, stack, state);
      ASSERT_TRUE(given.defined()) << kind.name;
      EXPECT_EQ(given.scalar_type(), kind.type) << kind.name;
    }
    EXPECT_EQ(named(kind.name, stack, "philox_seed").dim(), kind.seeds) << kind.name;
  }
}

TEST(GpuCalls, CudnnGetsTheGradientInTheOrderOfTheResult) {
  const char* const cudnn = "aten::_scaled_dot_product_cudnn_attention_backward";
  Stack stack = arguments(cudnn);
  EXPECT_NE(named(cudnn, stack, "grad_out").strides(), named(cudnn, stack, "out").strides());
  complete_gpu_call(op(cudnn), stack);
  EXPECT_EQ(named(cudnn, stack, "grad_out").strides(), named(cudnn, stack, "out").strides());
}

TEST(GpuCalls, AttentionReturnsWhatIsComputedOnly) {
  struct Kind {
    const char* name;
    size_t results, state;
  };
  for (const auto& [name, results, state] : {Kind{"aten::_scaled_dot_product_flash_attention", 9, 3},
                                             Kind{"aten::_scaled_dot_product_efficient_attention", 4, 2},
                                             Kind{"aten::_scaled_dot_product_cudnn_attention", 9, 3}}) {
    Stack stack(results, at::ones({1}));
    forget_random_state(op(name), stack);
    size_t forgotten = 0;
    for (const c10::IValue& result : stack) forgotten += !result.toTensor().defined();
    EXPECT_EQ(forgotten, state) << name;
    EXPECT_TRUE(stack[0].toTensor().defined() && stack[1].toTensor().defined()) << name;
  }
}

}  // namespace
}  // namespace piper
