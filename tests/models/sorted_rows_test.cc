// Experts without slots compute what experts compute that have a slot for every token, however the router chooses.
#include "models/sorted_rows.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "capture/step.h"
#include "models/configurations.h"

namespace piper {
namespace {

using at::Tensor;

Tensor some_numbers(std::vector<int64_t> sizes) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  return at::randn(sizes, generator, at::TensorOptions(at::kDouble));
}

TEST(SortedRows, AreInTheOrderOfExpertsTokensAndChoices) {
  const SortedRows rows = sort_rows(choose(some_numbers({6, 3}), {.top_k = 2}));
  const Tensor experts = rows.choices.experts.reshape({-1}).index_select(0, rows.order);
  for (int64_t r = 0; r < 12; ++r) {
    const int64_t choice = rows.order[r].item<int64_t>(), expert = experts[r].item<int64_t>();
    EXPECT_EQ(rows.choices.experts[choice / 2][choice % 2].item<int64_t>(), expert);
    EXPECT_EQ(rows.places[choice].item<int64_t>(), r);
    if (r == 0) continue;
    const int64_t before = experts[r - 1].item<int64_t>();
    EXPECT_TRUE(before < expert || (before == expert && rows.order[r - 1].item<int64_t>() < choice)) << r;
  }
  EXPECT_EQ(rows.ends[2].item<int>(), 12);
  EXPECT_EQ(rows.counts.sum().item<int64_t>(), 12);
}

/// A token comes back as it was, because the weights of its choices add up to one; and so does its gradient.
TEST(SortedRows, ComeBack) {
  const SortedRows rows = sort_rows(choose(some_numbers({7, 5}), {.top_k = 3}));
  Tensor x = some_numbers({7, 4}).requires_grad_();
  const Tensor back = combine(dispatch(x, rows), rows), weights = some_numbers({7, 4}) + 1;
  EXPECT_TRUE(at::allclose(back, x, 0, 1e-14));
  const Tensor gradient = torch::autograd::grad({(back * weights).sum()}, {x})[0];
  EXPECT_TRUE(at::allclose(gradient, weights, 0, 1e-14));
}

struct Routed {
  std::string name, more;
  int experts, top_k;
  double router = 20;  // what the router's weights are multiplied with; 0: all tokens choose the same experts
};
void PrintTo(const Routed& routed, std::ostream* out) {
  *out << routed.name;
}

std::vector<Routed> routings() {
  const std::string qwen = "arch = \"qwen3-moe\"\nmoe_ffn = 7\n", mixtral = "arch = \"mixtral\"\nmoe_ffn = 8\n";
  return {
      {"qwen", qwen, 4, 2},
      {"mixtral", mixtral + "router_aux_loss_coef = 0\n", 8, 2},
      {"bias", mixtral + "bias = true\nact = \"gelu\"\n", 4, 2},
      {"shared", qwen + "shared_experts = 1\ndense_layers = 1\ndense_ffn = 8\n", 4, 2},
      {"reference", "arch = \"reference-moe\"\n", 4, 2},
      {"one_choice", qwen, 4, 1},
      {"all_choices", qwen, 4, 4},
      {"one_expert", qwen, 1, 1},
      {"all_tokens_to_the_same", qwen + "router_aux_loss_coef = 0.1\n", 8, 1, 0},
      {"most_experts_empty", mixtral, 64, 2},
      {"skewed", qwen, 8, 2, 1000},
  };
}

class Dropless : public testing::TestWithParam<Routed> {};

TEST_P(Dropless, EqualSlotsForAll) {
  const Routed& c = GetParam();
  const std::string common =
      fmt::format("[model]\nhidden = 16\nlayers = 2\nheads = 2\nvocab = 32\nseq = 8\nexperts = {}\n{}{}", c.experts,
                  c.more.find("reference") == std::string::npos ? fmt::format("top_k = {}\n", c.top_k) : "", c.more);
  const std::string step = "[step]\nbatch = 4\nweights = \"float64\"\ngradients = \"float64\"\n";
  const Tensor tokens = at::arange(3 * 8).mul(7).remainder(32).view({3, 8}), targets = tokens.roll(1, 1);
  const auto stepped = [&](const std::string& how) {
    TrainableModel model = built(common + how + step, BuildOn::Cpu);
    for (NamedTensor& parameter : model.meta.parameters) {
      const at::NoGradGuard no_gradient;
      if (parameter.name.find("router") != std::string::npos)
        parameter.tensor.mul_(c.router);
      else if (parameter.tensor.dim() > 1)
        parameter.tensor.mul_(5);
    }
    return eager_step(model.meta, {tokens, targets}, {});
  };
  const StepResult rows = stepped("dropless = true\n"),
                   slots = stepped(fmt::format("capacity_factor = {}\n", static_cast<double>(c.experts) / c.top_k));
  EXPECT_NEAR(rows.loss.item<double>(), slots.loss.item<double>(), 1e-13);
  ASSERT_EQ(rows.gradients.size(), slots.gradients.size());
  for (const auto& [name, expected] : slots.gradients) {
    const double size = expected.abs().max().item<double>();
    EXPECT_LE((rows.gradients.at(name) - expected).abs().max().item<double>(), 1e-12 * std::max(size, 1e-3)) << name;
  }
}
INSTANTIATE_TEST_SUITE_P(All, Dropless, testing::ValuesIn(routings()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace piper
