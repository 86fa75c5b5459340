// What the operators of a model do, beside what its passes do as a whole.
#include "model/operator_work.h"

#include <gtest/gtest.h>

#include "model/analytic/analytic_model.h"
#include "model/analytic/step_overrides.h"
#include "model/load_model.h"
#include "must.h"

namespace piper {
namespace {

double flops_of(const DeviceOperators& operators) {
  double flops = 0;
  for (const MatrixProduct& p : operators.products)
    flops += 2 * static_cast<double>(p.count) * static_cast<double>(p.rows) * static_cast<double>(p.columns) *
             static_cast<double>(p.depth);
  return flops;
}

ModelGraph load(const std::string& name, LayerForm form = LayerForm::Blocks) {
  return must(load_model("analytic:" + name, {}, form));
}

/// Only matrix products count as floating-point operations, so both say the same.
void expect_equal_flops(const ModelGraph& model, const ShardCounts& shards, double tolerance) {
  constexpr int64_t samples = 4;
  for (const Chunk& chunk : model.chunks)
    for (const Pass pass : {Pass::F, Pass::B, Pass::BI, Pass::BW})
      if (const PassWork* work = chunk.find(pass)) {
        ASSERT_TRUE(work->operators) << chunk.name;
        bool divided = false;
        for (const ProductShape& product : work->operators->products)
          for (const Dim& dim : product.extents) divided |= dim.label == tp_label;
        const double whole = static_cast<double>(work->flops.at(samples));
        const double expected = whole / static_cast<double>(divided ? shards[ShardKind::Tp] : 1);
        EXPECT_NEAR(flops_of(on_device(*work->operators, samples, divided ? shards : ShardCounts())), expected,
                    tolerance * expected)
            << chunk.name << " " << name(pass);
        EXPECT_LE(work->operators->streamed.at(samples), work->bytes_moved.at(samples)) << chunk.name;
      }
}

TEST(OperatorWork, ProductsDoTheFlopsOfTheirPass) {
  for (const char* name : {"GPT-3-175B", "Llama-3-8B", "Qwen3-8B"}) expect_equal_flops(load(name), {}, 1e-12);
  for (const char* name : {"Qwen3-30B-A3B", "DeepSeek-V3"})  // slots of an expert are rounded up
    expect_equal_flops(load(name), {}, 0.01);
}

TEST(OperatorWork, TensorParallelismDividesProducts) {
  for (const LayerForm form : {LayerForm::Sharded, LayerForm::ShardedVocabulary})
    for (const char* name : {"GPT-3-175B", "Llama-3-8B"})
      expect_equal_flops(load(name, form), ShardCounts(ShardKind::Tp, 8), 1e-12);
}

TEST(OperatorWork, ExpertsAreDividedAndTheirSlotsGathered) {
  const OperatorWork work{
      {{{{8, false, 1, "expert"}, {5, true, 4, "capacity"}, {64, false, 1, {}}, {32, false, 1, {}}}}}, {16, 4}, 3};
  const DeviceOperators expected{{{2, 40, 64, 32}}, 48, 3};
  EXPECT_EQ(on_device(work, 8, ShardCounts(ShardKind::Expert, 4)), expected);
}

TEST(OperatorWork, WithoutLabelsColumnsAreDivided) {
  const OperatorWork work{{{{{1, false, 1, {}}, {1, true, 1, {}}, {64, false, 1, {}}, {32, false, 1, {}}}}}, {0, 8}, 3};
  const DeviceOperators expected{{{1, 2, 16, 32}}, 4, 3};
  EXPECT_EQ(on_device(work, 2, ShardCounts(ShardKind::Tp, 4)), expected);
}

/// What is linear in layers: not what chooses, nor what makes logits, nor attention, nor experts.
TEST(OperatorWork, LinearLayersAreMarked) {
  const auto marked = [](const ModelGraph& model, const std::string& chunk, Pass pass) {
    for (const Chunk& of : model.chunks)
      if (of.name == chunk)
        return std::ranges::count(of.find(pass)->operators->products, ProductKind::Linear, &ProductShape::kind);
    throw std::runtime_error("no chunk " + chunk);
  };
  const ModelGraph dense = load("Llama-3-8B"), mixture = load("Qwen3-30B-A3B");
  EXPECT_EQ(marked(dense, "layer.0.attention", Pass::F), 4);
  EXPECT_EQ(marked(dense, "layer.0.attention", Pass::B), 8);
  EXPECT_EQ(marked(dense, "layer.0.mlp", Pass::BW), 3);
  EXPECT_EQ(marked(dense, "head", Pass::F), 0);
  EXPECT_EQ(marked(mixture, "layer.0.dispatch", Pass::F), 0);
  EXPECT_EQ(marked(mixture, "layer.0.experts", Pass::F), 0);
}

TEST(OperatorWork, StoredScoresCostMoreThanFlashAttention) {
  ModelConfig config = usual_config(Architecture::Gpt);
  config.hidden = 64;
  config.layers = 1;
  config.heads = 4;
  config.ffn = 256;
  config.vocab = 128;
  config.seq = 32;
  const auto attention = [&](bool flash) {
    config.flash_attention = flash;
    const ModelGraph model = must(analytic_model(config, resolve({}, config)));
    return *model.chunks[1].find(Pass::F)->operators;
  };
  const OperatorWork stored = attention(false), flash = attention(true);
  EXPECT_EQ(stored.streamed.per_sample - flash.streamed.per_sample, 4 * 4 * 32 * 32 * 2);  // softmax and dropout
  EXPECT_EQ(stored.kernels - flash.kernels, 3);  // two products, softmax, dropout for one kernel
}

}  // namespace
}  // namespace piper
