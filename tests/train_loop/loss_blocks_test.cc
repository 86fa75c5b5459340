// Losses in blocks of tokens: what is computed with whole logits, under every way to divide a step, in the memory that
// was planned.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "train_loop/combination.h"
#include "train_loop/tp_cases.h"

namespace piper {
namespace {

using testing::IsEmpty;

constexpr int64_t block = 3;  // tokens; no slice is a multiple of it

TrainableModel in_blocks(TrainableModel model, int64_t tokens = block) {
  model.loss_blocks = loss_blocks_of(tokens);
  return model;
}

/// Calls of this operator, in the passes of all chunks.
std::vector<const Call*> calls_of(const CapturedModel& captured, Pass pass, const std::string& op) {
  std::vector<const Call*> found;
  const CapturedSlice& slice = captured.slices()[0];
  for (const ChunkBodies& chunk : slice.chunks)
    if (const ChunkIr* body = chunk.find(pass))
      for (const Call& call : body->calls)
        if (slice.operators[call.op].name == op) found.push_back(&call);
  return found;
}
size_t count_calls(const CapturedModel& captured, Pass pass, const std::string& op) {
  return calls_of(captured, pass, op).size();
}

void expect_planned(const Trained& run) {
  for (size_t d = 0; d < run.peak_bytes.size(); ++d) EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << d;
}

void expect_equal_in_blocks(const Combination& c, DType dtype = DType::Float64) {
  SCOPED_TRACE(c.describe() + "\n" + c.schedule());
  const Subject subject{c.kind, c.layers(), dtype, Optimizer::AdamW};
  const Trained run = train(in_blocks(model_of(subject)), c.schedule(), usual_settings(subject));
  const Difference found = compare(run, reference(subject, c.slices()));
  EXPECT_LE(found.error, dtype == DType::Float64 ? 1e-12 : 1e-5) << found.where;
  expect_planned(run);
}

TEST(LossBlocks, OnOneDevice) {
  expect_equal_in_blocks(bare_combination("dropout", "", {1, 1, 1}));
  expect_equal_in_blocks(bare_combination("dropout", "", {1, 1, 1}), DType::Float32);
}

TEST(LossBlocks, InPipelinesOfReplicasWithZero2) {
  Combination c = bare_combination("tied", "1f1b", {2, 2, 1});
  c.dividing.zero = 2;
  expect_equal_in_blocks(c);
}

TEST(LossBlocks, InDualPipeVWithExperts) {
  expect_equal_in_blocks(bare_combination("mixture", "dualpipev", {2, 1, 2}));
}

TEST(LossBlocks, WithRecomputation) {
  Combination c = bare_combination("dropout", "1f1b", {2, 1, 1});
  c.recompute = true;
  expect_equal_in_blocks(c);
}

TEST(LossBlocks, WithHalvesOfBackward) {
  Combination c = bare_combination("dropout", "zb-h1", {2, 1, 1});
  c.recompute = true;
  expect_equal_in_blocks(c);
}

/// The vocabulary sharded or not: with it every device makes logits of its own words.
void expect_equal_with_tp(const std::string& model_name, const std::string& sharded, const std::string& mesh) {
  const TpCase c{"tp", model_name, 2, 4, mesh + sharded};
  SCOPED_TRACE(c.text());
  const TrainableModel model = model_of(c, 2);
  const Trained run = without_key_bias(train(in_blocks(model), c.text(), settings(c)));
  EXPECT_THAT(complaints(run, without_key_bias(train(in_blocks(model, 0), in_turn(c.slices), settings(c))), 1e-12),
              IsEmpty());
  expect_planned(run);
}

TEST(LossBlocks, OfAShardedVocabulary) {
  expect_equal_with_tp("grouped", vocabulary, "mesh(tp=2)\n" + whole);
  expect_equal_with_tp("one_key", everything, "mesh(tp=2)\n" + whole);
}

TEST(LossBlocks, OfAWholeVocabularyWithTensorParallelism) {
  expect_equal_with_tp("grouped", sequence, "mesh(tp=2)\n" + whole);
}

/// Every operator of them makes logits for its part of the words only.
TEST(LossBlocks, AreMadeOfPartsWhereTheVocabularyIsSharded) {
  const TpCase c{"tp", "grouped", 2, 4, "mesh(tp=2)\n" + whole + vocabulary};
  const PreparedTraining training = prepared(in_blocks(model_of(c, 2)), c.text());
  EXPECT_EQ(count_calls(*training.captured, Pass::F, "piper::logits_in_blocks"), 0);
  EXPECT_EQ(count_calls(*training.captured, Pass::F, "piper::logits_in_blocks_max"), 1);
  EXPECT_EQ(count_calls(*training.captured, Pass::F, "piper::logits_in_blocks_sum"), 1);
  EXPECT_EQ(count_calls(*training.captured, Pass::F, "aten::_log_softmax"), 0);
}

/// Each device makes the logits of its own tokens, and knows how many count on all of them.
void expect_equal_with_context(const std::string& model_name, const std::string& mesh, const std::string& shard,
                               const std::string& more = "") {
  TpCase c{"cp", model_name, 2, 4, mesh + shard + more};
  c.tokens = 8;
  SCOPED_TRACE(c.text());
  const TrainableModel model = model_of(c, 2);
  const PreparedTraining training = prepared(in_blocks(model), c.text());
  EXPECT_EQ(count_calls(*training.captured, Pass::F, "piper::logits_in_blocks"), 1);
  EXPECT_EQ(count_calls(*training.captured, Pass::F, "aten::_log_softmax"), 0);
  const Trained run = train(in_blocks(model), c.text(), settings(c));
  EXPECT_THAT(complaints(run, train(in_blocks(model, 0), in_turn(c.slices), settings(c)), 1e-12), IsEmpty());
  expect_planned(run);
}

TEST(LossBlocks, OfTokensDividedAmongDevices) {
  const std::string zigzag = "shard({}, along=cp, sequence=gather)\n",
                    contiguous = "shard({}, along=cp, sequence=gather, order=contiguous)\n",
                    alone = "mesh(cp=4)\n" + whole + "replicate({}, along=cp)\n",
                    piped = "mesh(pp=2, cp=2)\nplace({}, along=pp, stages=2)\nreplicate({}, along=cp, zero=3)\n";
  expect_equal_with_context("grouped", alone, zigzag);
  expect_equal_with_context("one_key", alone, contiguous);
  expect_equal_with_context("grouped", piped, contiguous,
                            "recompute({head=*})\nuse 1f1b(stages=stage, microbatches=mb)\n");
  expect_equal_with_context("grouped", piped, zigzag, "use zb-h1(stages=stage, microbatches=mb)\n");
}

TEST(LossBlocks, OfALargeVocabularyAreTheRule) {
  const auto tokens_of_a_block = [](int64_t words, int64_t hidden) -> int64_t {
    TrainableModel model = bare_model("large");
    const at::Tensor table = add_parameter(model, "table", {words, hidden});
    model.meta.loss = [table](const std::vector<at::Tensor>& inputs) {
      const at::Tensor logits = at::linear(at::embedding(table, inputs[0]), table);
      return at::cross_entropy_loss(logits.view({-1, table.size(0)}), inputs[0].view({-1}));
    };
    CaptureOptions options;
    options.step = model.step;
    options.inputs = model.inputs;
    options.measure_operators = false;
    const auto captured = capture(model.meta, options);
    const std::vector<const Call*> found = calls_of(*captured, Pass::F, "piper::logits_in_blocks");
    return found.empty() ? 0 : std::get<int64_t>(found[0]->arguments[4]);
  };
  EXPECT_EQ(tokens_of_a_block(32767, 2), 0);
  EXPECT_EQ(tokens_of_a_block(32768, 2), 1024);
  EXPECT_EQ(tokens_of_a_block(32768, 600), 1200);
}

/// What forward keeps for backward is a number of each token, and not the logits.
TEST(LossBlocks, KeepANumberOfEachToken) {
  const auto saved = [](int64_t tokens) {
    const TpCase c{"one", "grouped", 1, 1, "mesh(tp=1)\n" + whole, 1};
    const PreparedTraining training = prepared(in_blocks(model_of(c, 1), tokens), c.text());
    const ModelGraph& graph = *training.captured->graph();
    int64_t largest = 0;
    for (const Value& value : graph.values) {
      int64_t elements = 1;
      for (const Dim& dim : value.shape) elements *= dim.extent(tp_batch);
      if (value.kind == ValueKind::Computed) largest = std::max(largest, elements);
    }
    return largest;
  };
  constexpr int64_t tokens = tp_batch * 4, words = 32, hidden = 16;
  EXPECT_EQ(saved(0), tokens * words);
  EXPECT_EQ(saved(block), tokens * hidden);
}

}  // namespace
}  // namespace piper
