// What cannot be captured is refused with the operator, the scope and a way out: tests/golden/capture has the messages.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "capture/capture.h"
#include "capture/record/annotate.h"

namespace piper {
namespace {

using at::Tensor;

struct Toy {
  Tensor weight, buffer, stray_tensor;
};
using ToyLoss = std::function<Tensor(Toy&, const Tensor& x)>;

Tensor product(Toy& toy, const Tensor& x) {
  return at::matmul(x, toy.weight);
}

Result<CapturedModel> capture_toy(const ToyLoss& loss, std::vector<int64_t> samples = {4}) {
  Toy toy;
  MetaModel model;
  PIPER_CHECK(build_on_meta([&] {
    toy.weight = at::randn({6, 6}).requires_grad_(true);
    toy.buffer = at::zeros({6});
    toy.stray_tensor = at::ones({6});
  }));
  model.parameters = {{"weight", toy.weight}};
  model.buffers = {{"buffer", toy.buffer}};
  model.loss = [&](const std::vector<Tensor>& inputs) {
    const annotate scope("layer");
    return loss(toy, inputs[0]);
  };
  CaptureOptions options;
  options.step.batch = 8;
  options.inputs = {{"x", DType::Float32, {6}}};
  options.samples = std::move(samples);
  return capture(model, options);
}

struct Refusal {
  std::string name;
  ToyLoss loss;
  std::vector<int64_t> samples = {4};
};
void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.name;
}

std::vector<Refusal> refusals() {
  return {
      {"E601_item",
       [](Toy& toy, const Tensor& x) {
         const Tensor y = product(toy, x);
         return y.sum().item<float>() > 0 ? y.sum() : y.mean();
       }},
      {"E601_mask",
       [](Toy& toy, const Tensor& x) {
         const Tensor y = product(toy, x);
         return y.masked_select(y > 0).sum();
       }},
      {"E602_no_rule",
       [](Toy& toy, const Tensor& x) {
         const Tensor y = product(toy, x);
         return y.sum() + at::histc(y.detach(), 4).sum();
       }},
      {"E603_depend_on_each_other",
       [](Toy& toy, const Tensor& x) {
         const Tensor y = product(toy, x);
         return y.sum() + at::multinomial(y.detach().softmax(-1), 2).sum();
       }},
      {"E603_no_samples",
       [](Toy& toy, const Tensor& x) {
         const Tensor noise = at::rand({x.size(0) * 3}, x.options()).cumsum(0);
         return (product(toy, x).sum() * noise).sum();
       }},
      {"E604_not_registered", [](Toy& toy, const Tensor& x) { return (product(toy, x) * toy.stray_tensor).sum(); }},
      {"E605_not_a_number", [](Toy& toy, const Tensor& x) { return product(toy, x).sum(0); }},
      {"E605_shapes", [](Toy& toy, const Tensor& x) { return at::matmul(x, toy.weight.narrow(0, 0, 3)).sum(); }},
      {"E606_used_before",
       [](Toy& toy, const Tensor& x) {
         Tensor y;
         {
           const annotate scope("first");
           y = product(toy, x) + toy.buffer;
         }
         const annotate scope("second");
         toy.buffer.add_(y.detach().sum(0));
         return y.sum();
       }},
      {"E606_written_twice",
       [](Toy& toy, const Tensor& x) {
         Tensor y = product(toy, x);
         for (int i = 0; i < 2; ++i) {
           const annotate scope("count");
           toy.buffer.add_(1);
           y = y * 2;
         }
         return y.sum();
       }},
      {"E607_other_chunks",
       [](Toy& toy, const Tensor& x) {
         Tensor y = product(toy, x);
         if (x.size(0) > 2) {
           const annotate scope("extra");
           y = y.sin();
         }
         return y.sum();
       },
       {2, 4}},
      {"E607_square",
       [](Toy& toy, const Tensor& x) {
         const Tensor y = product(toy, x);
         Tensor z;
         {
           const annotate scope("square");
           z = at::tanh(at::matmul(y, y.t()).view({-1}));
         }
         return z.sin().sum();
       },
       {2, 3, 4}},
  };
}

class NotCaptured : public testing::TestWithParam<Refusal> {};

TEST_P(NotCaptured, Message) {
  auto result = capture_toy(GetParam().loss, GetParam().samples);
  ASSERT_FALSE(result);
  const std::string message = render(result.error());
  const std::string path = std::string(PIPER_SOURCE_DIR) + "/tests/golden/capture/" + GetParam().name + ".txt";
  if (std::getenv("PIPER_UPDATE")) std::ofstream(path) << message;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing; PIPER_UPDATE=1 in the environment writes it";
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(message, expected.str());
}

INSTANTIATE_TEST_SUITE_P(Models, NotCaptured, testing::ValuesIn(refusals()),
                         [](const auto& info) { return info.param.name; });

TEST(Captured, OtherSizesOfSlicesAreRefused) {
  auto captured = capture_toy([](Toy& toy, const Tensor& x) { return product(toy, x).sum(); });
  ASSERT_TRUE(captured) << render(captured.error());
  auto program = captured->program(ChunkId(0), Pass::F, 3);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code, ErrorCode::E607);
}

TEST(Captured, StateThatForwardUsesCannotBeComputedAgain) {
  auto captured = capture_toy([](Toy& toy, const Tensor& x) {
    const Tensor y = product(toy, x);
    toy.buffer.add_(y.detach().sum(0));
    return (y * toy.buffer.sum()).sum();
  });
  ASSERT_TRUE(captured) << render(captured.error());
  auto program = captured->program(ChunkId(0), Pass::R, 4);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code, ErrorCode::E606);
}

TEST(Captured, ScopesOutsideCaptureDoNothing) {
  const annotate outer("layer");
  const annotate inner("layer", {.experts = 2});
}

TEST(Captured, EqualOfATensorWithItselfIsKnown) {
  EXPECT_TRUE(capture_toy([](Toy& toy, const Tensor& x) {
    const Tensor y = product(toy, x);
    return y.equal(y) ? y.sum() : y.mean();
  }));
}

}  // namespace
}  // namespace piper
