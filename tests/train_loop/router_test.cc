// Routers with a bias of the choice, groups of experts and losses of their own, under every way to train them: one
// device's numbers. The bias moves by the choices of the whole batch, whoever makes them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/configurations.h"
#include "train_loop/tp_cases.h"

namespace piper {
namespace {

constexpr double rate = 0.01;  // router_bias_rate of the model

bool is_bias(const std::string& name) {
  return name.ends_with("dispatch.router.bias");
}

std::vector<TpCase> cases() {
  std::vector<TpCase> out;
  const auto add = [&](const std::string& name, int devices, int slices, const std::string& schedule,
                       int microbatches = 4) {
    out.push_back({name, "routed", devices, slices, schedule, microbatches});
  };
  const std::string few = "shard({experts=*}, along=ep, buffer=0.25)\n";
  const auto piped = [&](const std::string& timeline, int stages, const std::string& more) {
    std::string name = timeline;
    std::replace(name.begin(), name.end(), '-', '_');
    add(name, 4, 8,
        fmt::format("mesh(pp=2, ep=2)\nplace({{}}, along=pp, stages={}{})\nreplicate({{}}, along=ep, zero=2)\n", stages,
                    stages > 2 ? ", shape=v" : "") +
            few + more + fmt::format("use {}(stages=stage, microbatches=mb)\n", timeline));
  };
  add("replicas", 2, 4, "mesh(dp=2)\n" + whole + "replicate({}, along=dp, zero=3, bucket=1KB)\n", 2);
  add("on_four", 4, 4, "mesh(ep=4)\n" + whole + "replicate({}, along=ep)\n" + few, 1);
  piped("1f1b", 2, "recompute({layer=*})\n");
  piped("zb-h1", 2, "");
  piped("dualpipev", 4, "");
  return out;
}

class Router : public testing::TestWithParam<TpCase> {};

TEST_P(Router, EqualsOneDevice) {
  const TpCase& c = GetParam();
  SCOPED_TRACE(c.text());
  const TrainableModel model = model_of(c);
  TrainSettings how = settings(c);
  how.clip = 0.5;  // to which gradients of the bias add nothing
  const Trained run = train(model, c.text(), how), expected = train(model, in_turn(c.slices), how);
  EXPECT_EQ(run.devices, c.devices);
  EXPECT_THAT(complaints(run, expected, 1e-12), testing::IsEmpty());
  for (size_t d = 0; d < run.peak_bytes.size(); ++d) EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << d;
  int moved = 0;
  for (const auto& [name, bias] : run.weights)
    for (int64_t e = 0; e < (is_bias(name) ? bias.numel() : 0); ++e) {
      const double steps = bias[e].item<double>() / rate;
      EXPECT_NEAR(steps, std::round(steps), 1e-9) << name;
      EXPECT_LE(std::abs(steps), 2.001) << name;
      moved += steps != 0;
    }
  EXPECT_GT(moved, 8);
}
INSTANTIATE_TEST_SUITE_P(All, Router, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

/// Whatever optimizer the others have, and with master copies: by the rate, against the sign of its gradient.
TEST(RouterBias, IsMovedByTheSignAloneUnderEveryOptimizer) {
  for (const std::string optimizer : {"sgd", "momentum", "adamw", "lion", "muon", "adafactor"}) {
    const TpCase c{"", "routed", 1, 2, whole, 2};
    TrainableModel model = built(fmt::format("[model]\nhidden = 16\nvocab = 32\nseq = 4\nlayers = 1\n{}\n[step]\n"
                                             "batch = 8\nweights = \"bfloat16\"\noptimizer = \"{}\"\n",
                                             tp_models().at("routed"), optimizer),
                                 BuildOn::Meta);
    TrainSettings how = settings(c);
    how.steps = 1;
    how.optimizer.kind = model.step.optimizer;
    how.optimizer.learning_rate = 0.3;
    const Trained run = train(model, in_turn(2), how);
    const std::string name = "layer.0.dispatch.router.bias";
    const at::Tensor gradient = run.gradients[0].at(name).to(at::kDouble);
    EXPECT_EQ(gradient.sum().item<double>(), 0) << "what is above the mean is below it elsewhere";
    EXPECT_TRUE(at::allclose(run.masters.at(name).to(at::kDouble), gradient.sign() * -rate, 0, 1e-9)) << optimizer;
    EXPECT_GT(gradient.abs().max().item<double>(), 0);
    EXPECT_LT(gradient.abs().max().item<double>(), 1e-15);
  }
}

}  // namespace
}  // namespace piper
