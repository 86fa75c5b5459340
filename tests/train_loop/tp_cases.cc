#include "train_loop/tp_cases.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "models/configurations.h"
#include "schedule/schedule_text.h"

namespace piper {

const std::map<std::string, std::string>& tp_models() {
  static const std::string llama = "arch = \"llama3\"\nheads = 4\nkv_heads = 2\nffn = 12\n";
  static const std::map<std::string, std::string> all = {
      {"reference", "arch = \"reference\"\nheads = 4\n"},
      {"reference_mixture", "arch = \"reference-moe\"\nheads = 4\nexperts = 4\ntop_k = 2\ncapacity_factor = 1.25\n"},
      {"grouped", llama},
      {"one_key", "arch = \"llama3\"\nheads = 4\nkv_heads = 1\nffn = 12\ntie_embeddings = true\n"},
      {"biased",
       "arch = \"gpt\"\nheads = 4\nffn = 12\nact = \"gelu\"\nnorm = \"layernorm\"\nbias = true\ndropout = false\n"},
      {"four_keys", "arch = \"llama3\"\nheads = 4\nkv_heads = 4\nffn = 12\n"},
      {"normed_keys", "arch = \"qwen3-dense\"\nheads = 4\nkv_heads = 2\nffn = 12\n"},
      {"normed_one_key", "arch = \"qwen3-dense\"\nheads = 4\nkv_heads = 1\nffn = 12\n"},
      {"dropout", llama + "dropout = true\ndropout_rate = 0.2\n"},
      {"dropped_scores", llama + "dropout = true\ndropout_rate = 0.2\nflash_attention = false\n"},
      {"mixture",
       "arch = \"qwen3-moe\"\nheads = 4\nkv_heads = 2\nmoe_ffn = 8\nexperts = 4\ntop_k = 2\ncapacity_factor = 1.25\n"},
      {"biased_mixture",
       "arch = \"mixtral\"\nheads = 4\nkv_heads = 2\nmoe_ffn = 8\nexperts = 4\ntop_k = 2\ncapacity_factor = 1.25\nbias "
       "= true\n"},
      {"dropless",
       "arch = \"qwen3-moe\"\nheads = 4\nkv_heads = 2\nmoe_ffn = 8\nexperts = 4\ntop_k = 2\ndropless = true\n"},
      {"dropless_bias",
       "arch = \"mixtral\"\nheads = 4\nkv_heads = 2\nmoe_ffn = 6\nexperts = 4\ntop_k = 2\ndropless = true\nbias = "
       "true\n"},
      {"routed",
       "arch = \"qwen3-moe\"\nheads = 4\nkv_heads = 2\nmoe_ffn = 6\nexperts = 8\ntop_k = 2\ndropless = true\n"
       "scoring_func = \"sigmoid\"\nn_group = 4\ntopk_group = 2\nrouted_scaling_factor = 1.5\nshared_experts = 1\n"
       "router_bias_rate = 0.01\nrouter_aux_loss = \"joint\"\nrouter_z_loss_coef = 0.01\n"},
      {"dropless_reference", "arch = \"reference-moe\"\nheads = 4\nexperts = 4\ndropless = true\n"},
      {"shared_mixture",
       "arch = \"qwen3-moe\"\nheads = 4\nkv_heads = 2\nmoe_ffn = 8\nexperts = 4\ntop_k = 2\ncapacity_factor = 1.25\n"
       "shared_experts = 1\n"},
  };
  return all;
}

std::string TpCase::text() const {
  return fmt::format("split(batch, parts={}, as=mb)\n", microbatches) + schedule;
}
void PrintTo(const TpCase& c, std::ostream* out) {
  *out << c.name;
}

TrainableModel model_of(const TpCase& c, int layers) {
  TrainableModel model =
      built(fmt::format("[model]\nhidden = 16\nvocab = 32\nseq = {}\nlayers = {}\n{}\n[step]\nbatch = {}\n"
                        "weights = \"{}\"\ngradients = \"{}\"\noptimizer = \"adamw\"\n",
                        c.tokens, layers, tp_models().at(c.model), tp_batch, name(c.dtype), name(c.dtype)),
            BuildOn::Meta);
  model.initialize = [usual = model.initialize](const std::string& name, at::Tensor& whole) {
    usual(name, whole);
    if (whole.dim() > 1) whole.mul_(5);  // small models need larger weights, or gradients are mostly rounding errors
  };
  return model;
}

TrainSettings settings(const TpCase& c) {
  TrainSettings out;
  out.optimizer.kind = Optimizer::AdamW;
  out.optimizer.learning_rate = c.dtype == DType::Float64 ? 1e-4 : 1e-5;
  out.job.timeout.first = 60;
  return out;
}

std::string one_device(const TpCase& c) {
  const size_t begin = c.schedule.rfind("shard("), end = c.schedule.find('\n', begin) + 1;
  return fmt::format("mesh(tp=1)\nsplit(batch, parts={}, as=mb)\n", c.slices) + whole +
         c.schedule.substr(begin, end - begin);
}

PreparedTraining prepared(const TrainableModel& model, const std::string& schedule) {
  auto parsed = parse_schedule(make_source("schedule.piper", schedule));
  auto out = prepare_training(model, *parsed);
  if (!out) throw std::runtime_error(render(out.error()));
  return *std::move(out);
}

TrainableModel bare_model(const std::string& name) {
  TrainableModel model;
  model.name = name;
  model.step.batch = 4;
  model.step.weights = model.step.gradients = DType::Float64;
  model.step.optimizer = Optimizer::AdamW;
  model.inputs = {{"tokens", DType::Int64, {4}}};
  model.initialize = [](const std::string& parameter, at::Tensor& whole) {
    whole.copy_(at::arange(whole.numel(), whole.options()).mul(0.37 + 0.01 * parameter[0]).sin().view(whole.sizes()));
  };
  return model;
}
at::Tensor add_parameter(TrainableModel& model, const std::string& name, std::vector<int64_t> sizes) {
  model.meta.parameters.push_back(
      {name, at::empty(sizes, at::TensorOptions(at::kMeta).dtype(at::kDouble)).set_requires_grad(true)});
  return model.meta.parameters.back().tensor;
}
TrainSettings bare_settings() {
  TrainSettings out;
  out.optimizer.kind = Optimizer::AdamW;
  out.optimizer.learning_rate = 1e-4;
  return out;
}

void expect_equal_to_one_device(const TpCase& c) {
  SCOPED_TRACE(c.text());
  const TrainableModel model = model_of(c);
  const auto trained = [&](const std::string& schedule) {
    return without_key_bias(train(model, schedule, settings(c)));
  };
  const Trained run = trained(c.text());
  EXPECT_EQ(run.devices, c.devices);
  const double tolerance = c.dtype == DType::Float64 ? 1e-12 : 1e-5;
  EXPECT_THAT(complaints(run, trained(one_device(c)), tolerance), testing::IsEmpty());
  EXPECT_THAT(complaints(run, trained(in_turn(c.slices)), tolerance), testing::IsEmpty());
  for (size_t d = 0; d < run.peak_bytes.size(); ++d) EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << d;
}

}  // namespace piper
