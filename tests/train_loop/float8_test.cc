// Linear layers that multiply in float8 compute the same under every schedule, in the memory that was planned.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "capture/record/annotate.h"
#include "models/configurations.h"
#include "schedule/schedule_text.h"
#include "train_loop/tp_cases.h"

namespace piper::float8 {
namespace {

using testing::IsEmpty;

const std::string directive = "precision({layer=*}, matmul=float8)\n";

/// Sizes that a GPU can multiply: widths, and 16 tokens of a sample.
TrainableModel model_of(const std::string& kind, DType dtype = DType::Float64) {
  static const std::map<std::string, std::string> kinds = {
      {"gpt", "arch = \"gpt\"\nffn = 64\nnorm = \"layernorm\"\nbias = true\ndropout = true\ndropout_rate = 0.1\n"},
      {"llama", "arch = \"llama3\"\nkv_heads = 2\nffn = 48\n"},
      {"wide", "arch = \"llama3\"\nkv_heads = 4\nffn = 64\n"},
      {"mixture",
       "arch = \"qwen3-moe\"\nkv_heads = 2\nmoe_ffn = 24\nexperts = 4\ntop_k = 2\ncapacity_factor = 1.25\n"
       "shared_experts = 2\nrouter_aux_loss_coef = 0.01\n"},
      {"dropless", "arch = \"qwen3-moe\"\nkv_heads = 2\nmoe_ffn = 24\nexperts = 4\ntop_k = 2\ndropless = true\n"},
  };
  return built(fmt::format("[model]\nhidden = 32\nheads = 4\nvocab = 40\nseq = 16\nlayers = 4\n{}\n[step]\nbatch = 8\n"
                           "weights = \"{}\"\ngradients = \"{}\"\noptimizer = \"adamw\"\n",
                           kinds.at(kind), name(dtype), name(dtype)),
               BuildOn::Meta);
}

TrainSettings settings() {
  TrainSettings out;
  out.optimizer.kind = Optimizer::AdamW;
  out.optimizer.learning_rate = 1e-3;
  return out;
}

std::string pipeline(const std::string& timeline, const std::string& axes, bool v, const std::string& more) {
  return fmt::format("mesh({})\nplace({{}}, along=pp, stages={}{})\n{}", axes, v ? 4 : 2, v ? ", shape=v" : "", more) +
         directive + fmt::format("use {}(stages=stage, microbatches=mb)\n", timeline);
}

struct Case {
  std::string name, model, schedule;
  int microbatches, slices;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

std::vector<Case> cases() {
  const std::string replicas = "mesh(dp=2)\nplace({}, mesh={})\n", recompute = "recompute({layer=*})\n";
  std::vector<Case> out;
  for (const int zero : {1, 3})
    out.push_back({fmt::format("zero_{}", zero), "llama",
                   replicas + fmt::format("replicate({{}}, along=dp, zero={}, bucket=1KB)\n", zero) + directive, 4, 8});
  for (const char* model : {"gpt", "llama", "mixture", "dropless"}) {
    out.push_back({fmt::format("recompute_{}", model), model,
                   "devices(1)\nplace({}, devices=[0])\n" + recompute + directive, 4, 4});
    out.push_back({fmt::format("zero_bubble_{}", model), model, pipeline("zb-h1", "pp=2", false, ""), 4, 4});
  }
  out.push_back({"halves_and_recomputation", "gpt", pipeline("zb-h1", "pp=2", false, recompute), 4, 4});
  out.push_back({"dualpipev", "llama", pipeline("dualpipev", "pp=2", true, ""), 4, 4});
  out.push_back({"dualpipev_of_replicas", "mixture",
                 pipeline("dualpipev", "pp=2, dp=2", true, "replicate({}, along=dp, zero=2)\n"), 4, 8});
  out.push_back({"experts", "mixture",
                 replicas + "replicate({}, along=dp, zero=1)\nshard({experts=*}, along=dp)\n" + directive, 4, 8});
  return out;
}

std::string text(const Case& c) {
  return fmt::format("split(batch, parts={}, as=mb)\n", c.microbatches) + c.schedule;
}

class Float8Training : public testing::TestWithParam<Case> {};

TEST_P(Float8Training, EqualsOneDevice) {
  const Case& c = GetParam();
  SCOPED_TRACE(text(c));
  const TrainableModel model = model_of(c.model);
  const Trained run = train(model, text(c), settings());
  EXPECT_THAT(complaints(run, train(model, in_turn(c.slices) + directive, settings()), 1e-12), IsEmpty());
  const Difference from_float64 = compare(run, train(model, in_turn(c.slices), settings()));
  EXPECT_GT(from_float64.error, 1e-4) << "nothing was rounded";
  for (size_t d = 0; d < run.peak_bytes.size(); ++d) EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << d;
}

INSTANTIATE_TEST_SUITE_P(All, Float8Training, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

at::Tensor rounded(const at::Tensor& x, int64_t over) {
  const at::Tensor scale = at::exp2((x.abs().amax(over, true).clamp_min(1e-12) / 448).log2().ceil());
  return (x / scale).clamp(-448, 448).to(at::kFloat8_e4m3fn).to(at::kDouble) * scale;
}

/// One step written down: x w^T and its gradients as torchao's recipe "rowwise" computes them.
TEST(Float8, IsWhatTheRecipeComputes) {
  TrainableModel model = bare_model("two_layers");
  const at::Tensor table = add_parameter(model, "table", {11, 32}), up = add_parameter(model, "up", {48, 32}),
                   down = add_parameter(model, "down", {32, 48});
  model.meta.loss = [=](const std::vector<at::Tensor>& inputs) {
    const at::Tensor x = at::embedding(table, inputs[0].remainder(11)).flatten(0, 1);
    const auto scope = annotate("layer");
    return (x + at::linear(at::linear(x, up).tanh(), down)).pow(2).mean();
  };
  TrainSettings settings = bare_settings();
  settings.steps = 1;
  const Trained run = train(model, in_turn(1) + directive, settings);

  const auto value = [&](const std::string& name, std::vector<int64_t> sizes) {
    at::Tensor whole = at::empty(sizes, at::kDouble);
    model.initialize(name, whole);
    return whole;
  };
  at::Tensor tokens = at::empty({4, 4}, at::kLong);
  fill_input(model.step, 0, "tokens", 0, tokens);
  const at::Tensor u = value("up", {48, 32}), d = value("down", {32, 48}),
                   x = value("table", {11, 32}).index_select(0, tokens.remainder(11).flatten());
  const at::Tensor t = rounded(x, 1).mm(rounded(u.t(), 0)).tanh();
  const at::Tensor y = x + rounded(t, 1).mm(rounded(d.t(), 0));
  const at::Tensor dy = 2 * y / y.numel();
  const at::Tensor da = rounded(dy, 1).mm(rounded(d, 0)) * (1 - t * t);
  EXPECT_NEAR(run.losses[0], y.pow(2).mean().item<double>(), 1e-12);
  const auto expect_gradient = [&](const std::string& name, const at::Tensor& expected) {
    EXPECT_LT((run.gradients[0].at(name) - expected).abs().max().item<double>(),
              1e-12 * expected.abs().max().item<double>())
        << name;
  };
  expect_gradient("down", rounded(dy.t(), 1).mm(rounded(t, 0)));
  expect_gradient("up", rounded(da.t(), 1).mm(rounded(x, 0)));
}

/// A device that has a part of what a product sums over rounds it with scales of its own: the loss is nearly that of
/// one device.
TEST(Float8, OfDividedLayersIsAlmostThatOfOneDevice) {
  const TrainableModel model = model_of("wide");
  const std::string divided = "mesh(tp=2)\nsplit(batch, parts=4, as=mb)\n" + whole + tensor_parallel;
  const Trained run = train(model, divided + directive, settings()), exact = train(model, divided, settings()),
                one = train(model, in_turn(4) + directive, settings());
  EXPECT_NE(run.losses, one.losses);
  for (size_t step = 0; step < run.losses.size(); ++step) {
    EXPECT_NEAR(run.losses[step], one.losses[step], 0.01 * one.losses[step]);
    EXPECT_NEAR(run.losses[step], exact.losses[step], 0.01 * exact.losses[step]);
  }
}

TEST(Float8, MemoryIsWhatWasPlanned) {
  TrainSettings serial = settings();
  serial.job.run.issue = Issue::Serial;
  for (const char* kind : {"llama", "mixture"})
    for (const DType dtype : {DType::Float32, DType::BFloat16}) {
      const Trained run = train(model_of(kind, dtype), in_turn(4) + directive, serial);
      EXPECT_EQ(run.peak_bytes, run.serial_bytes) << kind << " " << name(dtype);
    }
}

ErrorCode refused(const TrainableModel& model, const std::string& schedule) {
  const auto training = prepare_training(model, *parse_schedule(make_source("schedule.piper", schedule)));
  return training ? throw std::runtime_error("is not refused") : training.error().code;
}

TEST(Float8, NeedsSizesThatGpusMultiply) {
  const TrainableModel model = model_of("llama");
  // 8 tokens of a sample: backward sums over 8
  TrainableModel few = built(
      "[model]\nhidden = 32\nheads = 4\nvocab = 40\nseq = 8\nlayers = 1\narch = \"llama3\"\n"
      "kv_heads = 2\nffn = 48\n[step]\nbatch = 2\n",
      BuildOn::Meta);
  EXPECT_EQ(refused(few, "devices(1)\nsplit(batch, parts=2, as=mb)\nplace({}, devices=[0])\n" + directive),
            ErrorCode::E320);
  EXPECT_TRUE(
      prepare_training(few, *parse_schedule(make_source("s", "devices(1)\nplace({}, devices=[0])\n" + directive))));
  // each of 2 devices has 8 columns of the keys, and 24 of the inner width
  EXPECT_EQ(refused(model, "mesh(tp=2)\n" + whole + tensor_parallel + directive), ErrorCode::E320);
}

TEST(Float8, OfTheHeadAloneIsRefused) {
  EXPECT_EQ(refused(model_of("llama"), "devices(1)\nplace({}, devices=[0])\nprecision({head=*}, matmul=float8)\n"),
            ErrorCode::E320);
}

/// Those of the layers, all of them: not embeddings, the head, routers and experts.
TEST(Float8, LinearMatricesOfModels) {
  const auto names = [](const std::string& kind) {
    const auto training = prepared(model_of(kind), in_turn(4));
    const CapturedSlice& slice = training.captured->slices()[0];
    std::vector<std::string> out;
    for (const GraphTensor& tensor : slice.operators.tensors)
      if (tensor.kind == TensorKind::Parameter && slice.linear_matrices.contains(tensor.storage) &&
          tensor.name.find(".0.") != std::string::npos)
        out.push_back(tensor.name);
    return out;
  };
  EXPECT_EQ(names("llama").size(), 7u) << testing::PrintToString(names("llama"));
  EXPECT_EQ(names("mixture").size(), 7u) << testing::PrintToString(names("mixture"));
  EXPECT_EQ(names("dropless").size(), 4u) << testing::PrintToString(names("dropless"));
}

}  // namespace
}  // namespace piper::float8
