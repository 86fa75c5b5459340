// First values depend on the seed and the name, and on nothing else.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "models/configurations.h"
#include "models/initial_values.h"
#include "models/reference_tokens.h"

namespace piper {
namespace {

std::string llama(int layers, const std::string& weights = "float32") {
  return "[model]\narch = \"llama3\"\nhidden = 32\nheads = 2\nffn = 64\nvocab = 64\nseq = 16\nlayers = " +
         std::to_string(layers) + "\n[step]\nweights = \"" + weights + "\"\n";
}

at::Tensor tensor(const TrainableModel& model, const std::string& name) {
  for (const auto* list : {&model.meta.parameters, &model.meta.buffers})
    for (const NamedTensor& item : *list)
      if (item.name == name) return item.tensor.detach();
  throw std::runtime_error("no tensor " + name);
}

TEST(InitialValues, DoNotDependOnTheOrderOrTheModelAround) {
  const TrainableModel real = built(llama(2), BuildOn::Cpu, 5), meta = built(llama(2), BuildOn::Meta, 5);
  for (auto item = meta.meta.parameters.rbegin(); item != meta.meta.parameters.rend(); ++item) {
    at::Tensor whole = at::empty(item->tensor.sizes());
    meta.initialize(item->name, whole);
    EXPECT_TRUE(at::equal(whole, tensor(real, item->name))) << item->name;
  }
  const std::string name = "layer.1.attention.q.weight";
  EXPECT_TRUE(at::equal(tensor(real, name), tensor(built(llama(3), BuildOn::Cpu, 5), name)));
  EXPECT_FALSE(at::equal(tensor(real, name), tensor(built(llama(2), BuildOn::Cpu, 6), name)));
  EXPECT_FALSE(at::equal(tensor(real, name), tensor(real, "layer.0.attention.q.weight")));
  EXPECT_FALSE(at::equal(tensor(real, name), tensor(real, "layer.1.attention.k.weight")));
}

TEST(InitialValues, AreTheSameInEveryDtypeAndLayout) {
  at::Tensor wide = at::empty({48, 32}, at::kDouble), narrow = at::empty({48, 32}, at::kBFloat16),
             transposed = at::empty({32, 48}).t();
  for (at::Tensor* whole : {&wide, &narrow, &transposed}) fill_normal(*whole, 3, "w", 0.02);
  EXPECT_TRUE(at::equal(wide.to(at::kFloat), transposed));
  EXPECT_TRUE(at::equal(wide.to(at::kBFloat16), narrow));
}

TEST(InitialValues, AreNearlyNormal) {
  at::Tensor whole = at::empty({1 << 20});
  fill_normal(whole, 1, "w", 0.02);
  EXPECT_NEAR(whole.mean().item<double>(), 0, 1e-4);
  EXPECT_NEAR(whole.std().item<double>(), 0.02, 1e-4);
  EXPECT_LE(whole.abs().max().item<double>(), 0.02 * 3.5);
  EXPECT_NEAR(
      whole.narrow(0, 0, (1 << 20) - 1).dot(whole.narrow(0, 1, (1 << 20) - 1)).item<double>() / (0.0004 * (1 << 20)), 0,
      0.01);  // neighbours are not related
}

TEST(InitialValues, OfGainsBiasesAndRotations) {
  const TrainableModel real = built(llama(2), BuildOn::Cpu);
  EXPECT_TRUE(at::equal(tensor(real, "layer.0.mlp.norm.weight"), at::ones({32})));
  const at::Tensor cos = tensor(real, "rope.cos"), sin = tensor(real, "rope.sin");
  EXPECT_EQ(cos.sizes(), (std::vector<int64_t>{16, 8}));
  EXPECT_TRUE(at::allclose(cos * cos + sin * sin, at::ones({16, 8})));
  EXPECT_NEAR(cos[3][0].item<double>(), std::cos(3.0), 1e-6);
  EXPECT_NEAR(sin[5][4].item<double>(), std::sin(5.0 / 100), 1e-6);
}

TEST(InitialValues, OfTheReferenceDecoderIgnoreTheSeed) {
  const ReferenceSize tiny = reference_size("tiny");
  const TrainableModel a = built(tiny.config(), BuildOn::Cpu, 1), b = built(tiny.config(), BuildOn::Cpu, 2);
  for (const NamedTensor& item : a.meta.parameters)
    EXPECT_TRUE(at::equal(item.tensor, tensor(b, item.name))) << item.name;
  EXPECT_EQ(tensor(a, "layers.3.wqkv").sizes(), (std::vector<int64_t>{192, 64}));
  const std::vector<float> first(tensor(a, "layers.3.wqkv").data_ptr<float>(),
                                 tensor(a, "layers.3.wqkv").data_ptr<float>() + 3);
  EXPECT_EQ(first, (std::vector<float>{0.0267031901f, 0.0358169228f, -0.00714663975f}));
  EXPECT_TRUE(at::equal(tensor(a, "layers.0.norm1"), at::ones({64})));
}

TEST(ReferenceTokens, AreTheDefinedOnes) {
  std::vector<int64_t> row(5);
  reference_tokens(0, 16, 0, 256, row);
  EXPECT_EQ(row, (std::vector<int64_t>{183, 154, 9, 52, 11}));
  reference_tokens(3, 16, 5, 2048, row);
  EXPECT_EQ(row, (std::vector<int64_t>{337, 1692, 275, 1382, 773}));
}

}  // namespace
}  // namespace piper
