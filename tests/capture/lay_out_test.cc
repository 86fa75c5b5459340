// Kernels that give something else than the rules for shapes say: results are what was recorded.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "capture/step.h"

namespace piper {
namespace {

using at::Tensor;
using Loss = std::function<Tensor(const Tensor& weight, const std::vector<Tensor>& inputs)>;

MetaModel model_of(const Tensor& weight, Loss loss) {
  MetaModel model;
  model.parameters = {{"weight", weight}};
  model.loss = [=](const std::vector<Tensor>& inputs) { return loss(weight, inputs); };
  return model;
}

CaptureOptions options() {
  CaptureOptions out;
  out.step.batch = 8;
  out.inputs = {{"x", DType::Float32, {6}}, {"y", DType::Float32, {5}}};
  out.samples = {4};
  return out;
}

Tensor meta_weight() {
  Tensor weight;
  EXPECT_TRUE(build_on_meta([&] { weight = at::zeros({6, 5}).requires_grad_(true); }));
  return weight;
}

void expect_equal_to_eager(const Loss& loss) {
  auto captured = capture(model_of(meta_weight(), loss), options());
  ASSERT_TRUE(captured) << captured.error().message;
  const MetaModel weights = model_of(at::randn({6, 5}).requires_grad_(true), loss);
  const std::vector<Tensor> inputs = {at::randn({4, 6}), at::rand({4, 5}).round()};
  const RandomKey random{3, 8};
  const StepResult eager = eager_step(weights, inputs, random);
  for (const ReplayedBackward backward : {ReplayedBackward::Whole, ReplayedBackward::Halves, ReplayedBackward::Recompute})
    expect_bit_equal(eager, captured_step(*captured, weights, inputs, random, backward));
}

TEST(LayOut, GradientWrittenAfterItIsMade) {
  expect_equal_to_eager([](const Tensor& weight, const std::vector<Tensor>& in) {
    return (at::maximum(weight, in[0].t().matmul(in[1])) * weight).mean();
  });
}

}  // namespace
}  // namespace piper
