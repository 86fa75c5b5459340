// Every model can be captured, its experts can be sharded, and the captured step is the eager one bit by bit.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "capture/step.h"
#include "models/configurations.h"

namespace piper {
namespace {

constexpr int64_t vocabulary = 64, samples = 2;

/// `more` is added to [model], `weights` to [step].
struct Small {
  std::string name, more, weights;
  std::string config() const {
    return fmt::format(
        "[model]\nhidden = 32\nlayers = 2\nheads = 4\nvocab = {}\nseq = 16\n{}\n"
        "[step]\nbatch = 8\nweights = \"{}\"\ngradients = \"{}\"\n",
        vocabulary, more, weights, weights);
  }
};
void PrintTo(const Small& small, std::ostream* out) {
  *out << small.name;
}

std::vector<Small> all() {
  const std::string llama = "arch = \"llama3\"\nkv_heads = 2\nffn = 48\n";
  const std::string qwen =
      "arch = \"qwen3-moe\"\nkv_heads = 2\nmoe_ffn = 32\nexperts = 4\ntop_k = 2\ncapacity_factor = 1.25\n";
  const std::string dropless =
      "arch = \"qwen3-moe\"\nkv_heads = 2\nmoe_ffn = 36\nexperts = 4\ntop_k = 2\ndropless = true\n";
  const std::string gpt = "arch = \"gpt\"\nffn = 64\n";
  const std::string two = "arch = \"two-branch\"\nffn = 48\nencoder_layers = 2\n";
  return {
      {"llama", llama, "float32"},
      {"llama_float64", llama, "float64"},
      {"llama_bfloat16", llama, "bfloat16"},
      {"llama_tied", llama + "tie_embeddings = true", "float32"},
      {"llama_dropout", llama + "dropout = true\ndropout_rate = 0.2", "float32"},
      {"llama_wide_heads", llama + "head_dim = 16", "float32"},
      {"llama_stored_scores", llama + "flash_attention = false\ndropout = true", "float32"},
      {"qwen", "arch = \"qwen3-dense\"\nkv_heads = 1\nffn = 48\ntie_embeddings = true", "float32"},
      {"gpt", gpt, "float32"},
      {"gpt_bfloat16", gpt + "dropout = false", "bfloat16"},
      {"qwen_moe", qwen, "float32"},
      {"qwen_moe_bfloat16", qwen, "bfloat16"},
      {"qwen_moe_float64", qwen, "float64"},
      {"qwen_moe_dropout", qwen + "dropout = true", "float32"},
      {"qwen_moe_bias", qwen + "bias = true\nact = \"gelu\"", "float32"},
      {"qwen_moe_shared", qwen + "shared_experts = 1\ndense_layers = 1\ndense_ffn = 48", "float32"},
      {"mixtral_no_auxiliary_loss",
       "arch = \"mixtral\"\nmoe_ffn = 48\nexperts = 8\ntop_k = 2\nrouter_aux_loss_coef = 0", "float32"},
      {"dropless", dropless, "float32"},
      {"dropless_bfloat16", dropless, "bfloat16"},
      {"dropless_float64", dropless, "float64"},
      {"dropless_shared", dropless + "shared_experts = 1\ndropout = true", "float32"},
      {"dropless_bias", dropless + "bias = true\nact = \"gelu\"", "float64"},
      {"dropless_reference", "arch = \"reference-moe\"\nexperts = 8\ndropless = true", "float32"},
      {"reference", "arch = \"reference\"", "float32"},
      {"reference_bfloat16", "arch = \"reference\"", "bfloat16"},
      {"reference_moe", "arch = \"reference-moe\"\nexperts = 8", "float32"},
      {"two_branch", two, "float32"},
      {"two_branch_bfloat16", two + "tie_embeddings = true\nqk_norm = true", "bfloat16"},
      {"two_branch_dropout", two + "dropout = true", "float32"},
  };
}

CapturedModel captured(const TrainableModel& model, std::vector<int64_t> sizes) {
  CaptureOptions options;
  options.name = model.name;
  options.step = model.step;
  options.inputs = model.inputs;
  options.samples = std::move(sizes);
  auto result = capture(model.meta, options);
  if (!result) throw std::runtime_error(render(result.error()));
  return *std::move(result);
}

std::vector<at::Tensor> slice(const TrainableModel& model) {
  at::Generator generator = at::detail::createCPUGenerator(7);
  std::vector<at::Tensor> out;
  for (const InputSpec& input : model.inputs)
    out.push_back(at::randint(vocabulary, {samples, input.sample_sizes[0]}, generator, at::kLong));
  return out;
}

class SmallModels : public testing::TestWithParam<Small> {};

TEST_P(SmallModels, CapturedStepIsTheEagerOne) {
  const std::string config = GetParam().config();
  const CapturedModel model = captured(built(config, BuildOn::Meta), {samples});
  const TrainableModel real = built(config, BuildOn::Cpu);
  const std::vector<at::Tensor> inputs = slice(real);
  const RandomKey random{11, 4};
  const StepResult eager = eager_step(real.meta, inputs, random);
  EXPECT_TRUE(std::isfinite(eager.loss.item<double>()));
  EXPECT_NEAR(eager.loss.item<double>(), std::log(static_cast<double>(vocabulary)), 0.2);  // nothing is learned yet
  for (const ReplayedBackward backward :
       {ReplayedBackward::Whole, ReplayedBackward::Halves, ReplayedBackward::Recompute})
    expect_bit_equal(captured_step(model, real.meta, inputs, random, backward), eager);
  for (const Diagnostic& problem : model.unshardable()) ADD_FAILURE() << render(problem);
}

TEST_P(SmallModels, HaveTheUsualScopes) {
  const CapturedModel model = captured(built(GetParam().config(), BuildOn::Meta), {samples});
  std::set<std::string> outermost, inner;
  for (const Chunk& chunk : model.graph()->chunks) {
    ASSERT_FALSE(chunk.scopes.empty()) << chunk.name;
    outermost.insert(chunk.scopes.front().scope);
    inner.insert(chunk.scopes.back().scope);
  }
  const bool two = GetParam().name.starts_with("two"),
             mixture = GetParam().config().find("experts") != std::string::npos;
  EXPECT_EQ(outermost, two ? (std::set<std::string>{"left", "right", "join", "embed", "layer", "head"})
                           : (std::set<std::string>{"embed", "layer", "head"}));
  EXPECT_TRUE(inner.contains("attention"));
  EXPECT_EQ(inner.contains("experts"), mixture);
  const auto can_be_cut = [](const Parameter& parameter) { return parameter.shape[0].label == "expert"; };
  const std::vector<Parameter>& parameters = model.graph()->parameters;
  EXPECT_EQ(std::any_of(parameters.begin(), parameters.end(), can_be_cut), mixture);
}

TEST_P(SmallModels, CanBeCutIntoSlicesOfSeveralSizes) {
  const CapturedModel model = captured(built(GetParam().config(), BuildOn::Meta), {2, 4});
  EXPECT_EQ(model.slices().size(), 2u);
}

TEST_P(SmallModels, OperatorsDoTheFlopsOfTheirPass) {
  const CapturedModel model = captured(built(GetParam().config(), BuildOn::Meta), {2, 4});
  for (const Chunk& chunk : model.graph()->chunks)
    for (const Pass pass : {Pass::F, Pass::B, Pass::BI, Pass::BW})
      if (const PassWork* work = chunk.find(pass)) {
        ASSERT_TRUE(work->operators) << chunk.name;
        EXPECT_GT(work->operators->kernels, 0) << chunk.name;
        for (const int64_t samples : {2, 4}) {
          int64_t flops = 0;
          for (const MatrixProduct& p : on_device(*work->operators, samples, {}).products)
            flops += 2 * p.count * p.rows * p.columns * p.depth;
          EXPECT_EQ(flops, work->flops.at(samples)) << chunk.name;
          EXPECT_LE(work->operators->streamed.at(samples), work->bytes_moved.at(samples)) << chunk.name;
        }
      }
}

TEST(CapturedModels, KeepPositionsAsFrozenParameters) {
  const CapturedModel model = captured(built(all()[0].config(), BuildOn::Meta), {samples});
  std::set<std::string> frozen;
  for (const Parameter& parameter : model.graph()->parameters)
    if (parameter.frozen) frozen.insert(parameter.name);
  EXPECT_EQ(frozen, (std::set<std::string>{"rope.cos", "rope.sin"}));
}

INSTANTIATE_TEST_SUITE_P(All, SmallModels, testing::ValuesIn(all()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace piper
