// Dropout does not depend on the plan: however a model is placed and its batch sliced, it drops what one device drops
// that sees the whole batch at once.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "every.h"
#include "models/configurations.h"
#include "train_loop/tp_cases.h"
#include "train_loop/wrappers.h"

namespace piper {
namespace {

const std::string dropped = "dropout = true\ndropout_rate = 0.2\nheads = 4\nkv_heads = 2\n";
const std::string llama = "arch = \"llama3\"\nffn = 12\n" + dropped;

const std::map<std::string, std::string>& models() {
  static const std::map<std::string, std::string> all = {
      {"fused", llama},
      {"without", "arch = \"llama3\"\nffn = 12\nheads = 4\nkv_heads = 2\nflash_attention = false\n"},
      {"scores", llama + "flash_attention = false\n"},
      {"gpt", "arch = \"gpt\"\nheads = 4\nffn = 12\ndropout = true\ndropout_rate = 0.2\nflash_attention = false\n"},
      // no slot is missing in any slice, and no loss but that of tokens: experts do not depend on slices either
      {"experts",
       "arch = \"qwen3-moe\"\nmoe_ffn = 8\nexperts = 4\ntop_k = 2\ncapacity_factor = 2\n"
       "router_aux_loss_coef = 0\nflash_attention = false\n" +
           dropped},
  };
  return all;
}

TrainableModel model_named(const std::string& name) {
  TrainableModel model =
      built("[model]\nhidden = 16\nvocab = 32\nseq = 4\nlayers = 2\n" + models().at(name) +
                "\n[step]\nbatch = 8\nweights = \"float64\"\ngradients = \"float64\"\noptimizer = \"adamw\"\n",
            BuildOn::Meta);
  model.initialize = [usual = model.initialize](const std::string& parameter, at::Tensor& whole) {
    usual(parameter, whole);
    if (whole.dim() > 1) whole.mul_(5);
  };
  return model;
}

struct DropoutPlan {
  std::string name, schedule;
  int microbatches = 1;
};
void PrintTo(const DropoutPlan& plan, std::ostream* out) {
  *out << plan.name;
}
std::string text(const DropoutPlan& plan) {
  return fmt::format("split(batch, parts={}, as=mb)\n", plan.microbatches) + plan.schedule;
}

const std::string alone = "devices(1)\nplace({}, devices=[0])\n", tp = "mesh(tp=2)\n" + whole;

std::vector<DropoutPlan> plans() {
  const std::string pipeline = "mesh(pp=2)\nplace({}, along=pp, stages=2)\n";
  const std::string replicas = "mesh(dp=2)\n" + whole, replicate = "replicate({}, along=dp, zero=3, bucket=1KB)\n";
  return {
      {"two_microbatches", alone, 2},
      {"four_microbatches", alone, 4},
      {"eight_microbatches", alone, 8},
      {"recomputed", alone + "recompute({layer=*})\n", 2},
      {"one_f_one_b", pipeline + "use 1f1b(stages=stage, microbatches=mb)\n", 4},
      {"halves", pipeline + "use zb-h1(stages=stage, microbatches=mb)\n", 4},
      {"zero_3", replicas + replicate, 2},
      {"cut", tp + tensor_parallel, 2},
      {"cut_whole_batch", tp + tensor_parallel, 1},
      {"sequence", tp + sequence, 2},
      {"regathered", tp + regather, 1},
      {"vocabulary", tp + everything, 2},
      {"cut_recomputed", tp + sequence + "recompute({layer=*})\n", 4},
      {"everything",
       "mesh(pp=2, dp=2, tp=2)\nplace({}, along=pp, stages=2)\n" + replicate + sequence +
           "use 1f1b(stages=stage, microbatches=mb)\n",
       2},
  };
}

void expect_equal_to_whole_batch(const std::string& name, const DropoutPlan& plan) {
  static std::map<std::string, Trained> references;
  SCOPED_TRACE(name + "\n" + text(plan));
  const TrainableModel model = model_named(name);
  const auto trained = [&](const std::string& schedule) {
    return without_key_bias(train(model, schedule, bare_settings()));
  };
  if (!references.contains(name)) references.emplace(name, trained(in_turn(1)));
  const Difference difference = compare(trained(text(plan)), references.at(name));
  EXPECT_LT(difference.error, 1e-12) << difference.where;
}

class Dropout : public testing::TestWithParam<DropoutPlan> {};

TEST_P(Dropout, EqualsThatOfTheWholeBatch) {
  for (const std::string name : {"fused", "scores", "gpt", "experts"}) expect_equal_to_whole_batch(name, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Some, Dropout, testing::ValuesIn(every(3, plans())),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Thorough, Dropout, testing::ValuesIn(plans()),
                         [](const auto& info) { return info.param.name; });

TEST(DropoutOfExperts, EqualsThatOfTheWholeBatch) {
  const std::string sharded = "replicate({}, along=ep)\nshard({experts=*}, along=ep)\n";
  expect_equal_to_whole_batch("experts", {"sharded", "mesh(ep=2)\n" + whole + sharded, 2});
  expect_equal_to_whole_batch("experts", {"sharded_and_cut", "mesh(ep=2, tp=2)\n" + whole + sharded + sequence, 1});
}

/// Whoever draws a part without knowing which one draws something else.
TEST(DropoutOfParts, DependsOnWhichPartItIs) {
  struct Forgetful : PassingComputations {
    using PassingComputations::PassingComputations;
    std::unique_ptr<Computation> make(const ComputationSite& site) override {
      ComputationSite first = site;
      for (LocalShard& shard : first.shards.of) shard.index = 0;
      return to_.make(first);
    }
  };
  const auto error = [](const std::string& name, const std::string& how) {
    const TrainableModel model = model_named(name);
    TrainSettings settings = bare_settings();
    const Trained reference = train(model, in_turn(2), settings);
    settings.computations = [](Computations& in) { return std::make_unique<Forgetful>(in); };
    return compare(train(model, text({"", tp + how, 2}), settings), reference).error;
  };
  for (const std::string& how : {tensor_parallel, sequence}) {
    EXPECT_GT(error("scores", how), 1e-3) << how;
    EXPECT_LT(error("without", how), 1e-12) << how;  // nothing else asks which part it is
  }
}

}  // namespace
}  // namespace piper
