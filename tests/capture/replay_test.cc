// Programs of captured chunks compute what eager autograd computes, bit by bit, in any legal order.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "capture/step.h"
#include "capture/zoo.h"
#include "model/model_text.h"

namespace piper {
namespace {

class Replay : public testing::TestWithParam<zoo::Named> {
 protected:
  Replay() : weights(zoo::make(GetParam().config)), captured(zoo::captured(GetParam().config)) {}
  const RandomKey random{3, 8};
  MetaModel weights;
  CapturedModel captured;
};

TEST_P(Replay, EqualsEager) {
  const auto inputs = zoo::batch(GetParam().config, 2);
  const StepResult eager = eager_step(weights, inputs, random);
  for (const ReplayedBackward backward : {ReplayedBackward::Whole, ReplayedBackward::Halves, ReplayedBackward::Recompute}) {
    const Equality equality = expect_bit_equal(eager, captured_step(captured, weights, inputs, random, backward));
    EXPECT_GT(equality.all, 10);
    RecordProperty("bit_equal", std::to_string(equality.equal) + " of " + std::to_string(equality.all));
  }
}

TEST_P(Replay, OtherRandomNumbersForAnotherSlice) {
  if (GetParam().config.dropout == 0) return;
  const auto inputs = zoo::batch(GetParam().config, 2);
  const at::Tensor loss = captured_step(captured, weights, inputs, random, ReplayedBackward::Whole).loss;
  EXPECT_FALSE(loss.equal(captured_step(captured, weights, inputs, {3, 10}, ReplayedBackward::Whole).loss));
  EXPECT_FALSE(loss.equal(captured_step(captured, weights, inputs, {4, 8}, ReplayedBackward::Whole).loss));
  EXPECT_TRUE(loss.equal(captured_step(captured, weights, inputs, random, ReplayedBackward::Whole).loss));
}

/// The peak of every pass is its outputs and its temporaries, to the byte.
TEST_P(Replay, TakesThePlannedMemory) {
  const auto inputs = zoo::batch(GetParam().config, 2);
  const ModelGraph& graph = *captured.graph();
  Stepper stepper(captured, weights, inputs, random);
  const auto check = [&](ChunkId chunk, Pass pass) {
    const PassWork* work = graph[chunk].find(pass);
    if (!work) return;
    stepper.run(chunk, pass);
    stepper.run(chunk, pass);  // gradients are there the second time
    int64_t planned = work->temporaries.at(2);
    for (const ValueId id : work->writes) planned += elements(graph[id].shape, 2) * bytes_of(graph[id].dtype);
    EXPECT_EQ(stepper.last_peak, planned) << graph[chunk].name << " " << name(pass);
  };
  for (size_t c = 0; c < graph.chunks.size(); ++c) check(ChunkId(c), Pass::F);
  for (const Pass pass : {Pass::B, Pass::BI, Pass::BW})
    for (size_t c = graph.chunks.size(); c-- > 0;) check(ChunkId(c), pass);
}

/// Nothing that crosses a border is a parameter or a view of one.
TEST_P(Replay, ModelGraphPrintsAndReadsBack) {
  const std::string text = print(*captured.graph());
  auto parsed = parse_model(make_source("captured", text));
  ASSERT_TRUE(parsed) << render(parsed.error());
  EXPECT_EQ(*parsed, *captured.graph());
}

INSTANTIATE_TEST_SUITE_P(Zoo, Replay, testing::ValuesIn(zoo::all()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace piper
