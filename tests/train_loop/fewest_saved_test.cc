// Backward makes again what pointwise operators can make: what is saved is less, what is computed is the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "train_loop/combination.h"
#include "train_loop/tp_cases.h"

namespace piper {
namespace {

using testing::IsEmpty;

TrainableModel saving(TrainableModel model, Saved saved) {
  model.saved_activations = saved;
  return model;
}

/// Also no bit differs: the same operators run on the same numbers.
void expect_equal_with_fewest(const Combination& c) {
  SCOPED_TRACE(c.describe() + "\n" + c.schedule());
  const Subject subject{c.kind, c.layers(), DType::Float64, Optimizer::AdamW};
  const auto trained = [&](Saved saved) {
    return train(saving(model_of(subject), saved), c.schedule(), usual_settings(subject));
  };
  const Trained fewest = trained(Saved::Fewest), recorded = trained(Saved::AsRecorded);
  EXPECT_EQ(compare(fewest, recorded).error, 0) << compare(fewest, recorded).where;
  for (size_t d = 0; d < fewest.peak_bytes.size(); ++d) EXPECT_LE(fewest.peak_bytes[d], fewest.planned_bytes[d]) << d;
}

TEST(FewestSaved, ComputesTheSame) {
  for (const char* kind : {"dropout", "tied", "mixture_dropout"})
    expect_equal_with_fewest(bare_combination(kind, "", {1, 1, 1}));
}

TEST(FewestSaved, InPipelinesOfReplicasWithZero2) {
  Combination c = bare_combination("dropout", "1f1b", {2, 2, 1});
  c.dividing.zero = 2;
  expect_equal_with_fewest(c);
}

TEST(FewestSaved, WithHalvesOfBackwardAndRecomputation) {
  expect_equal_with_fewest(bare_combination("dropout", "zb-h1", {2, 1, 1}));
  Combination c = bare_combination("dropout", "zb-h1", {2, 1, 1});
  c.recompute = true;
  expect_equal_with_fewest(c);
}

TEST(FewestSaved, WithDividedExperts) {
  expect_equal_with_fewest(bare_combination("mixture", "dualpipev", {2, 1, 2}));
}

TEST(FewestSaved, WithTensorParallelism) {
  for (const std::string& sharded : {tensor_parallel, everything}) {
    const TpCase c{"tp", "grouped", 2, 4, "mesh(tp=2)\n" + whole + sharded};
    SCOPED_TRACE(c.text());
    const TrainableModel model = model_of(c, 2);
    const Trained run = without_key_bias(train(saving(model, Saved::Fewest), c.text(), settings(c)));
    const Trained reference = without_key_bias(train(saving(model, Saved::AsRecorded), in_turn(c.slices), settings(c)));
    EXPECT_THAT(complaints(run, reference, 1e-12), IsEmpty());
  }
}

/// Bytes that forward of a chunk leaves for its backward, of one sample.
int64_t saved_bytes(const ModelGraph& graph, const std::string& chunk) {
  int64_t bytes = 0;
  for (const Chunk& of : graph.chunks) {
    if (of.name != chunk) continue;
    for (const ValueId value : of.find(Pass::B)->reads) {
      const std::vector<ValueId>& written = of.find(Pass::F)->writes;
      if (std::find(written.begin(), written.end(), value) == written.end()) continue;
      int64_t size = bytes_of(graph[value].dtype);
      for (const Dim& dim : graph[value].shape) size *= dim.extent(1);
      bytes += size;
    }
  }
  return bytes;
}

/// h = silu(gate) * up is made of what is saved anyway, and so is what comes before and behind it.
TEST(FewestSaved, LeavesOutWhatCanBeMadeAgain) {
  const TpCase c{"one", "grouped", 1, 1, "mesh(tp=1)\n" + whole, 1};
  const auto bytes = [&](Saved saved) {
    const PreparedTraining training = prepared(saving(model_of(c, 1), saved), c.text());
    return saved_bytes(*training.captured->graph(), "layer.0");
  };
  EXPECT_LT(bytes(Saved::Fewest), bytes(Saved::AsRecorded));
}

}  // namespace
}  // namespace piper
