// Saved under one plan, continued under another: equal to one device that does the same; under the same plan equal to a
// run that was never stopped, bit by bit.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/read_file.h"
#include "every.h"
#include "must.h"
#include "train/golden_text.h"
#include "train/in_empty_folder.h"
#include "train_checkpoint/checkpointed.h"
#include "train_loop/covering.h"
#include "train_loop/tp_cases.h"

namespace piper {
namespace {

/// Everything in the files but piper.json, whose hash of the plan differs.
std::map<std::string, std::string> tensors_in(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::ostringstream bytes;
    bytes << in.rdbuf();
    out[entry.path().filename()] = bytes.str();
  }
  return out;
}

RunPart one_device_like(const Subject& subject, const Combination& c, int64_t steps) {
  return part_of(subject, in_turn(c.slices()), subject_batch / c.slices(), steps);
}

/// Combinations of the matrix of one model and size, in their order: each is saved and goes on under the next.
std::vector<std::pair<Combination, Combination>> changes() {
  std::vector<std::pair<Combination, Combination>> out;
  std::map<std::pair<std::string, int>, const Combination*> last;
  for (const Combination& c : pairwise_covering().trained) {
    const Combination*& before = last[{c.kind, c.layers()}];
    if (before) out.emplace_back(*before, c);
    before = &c;
  }
  return out;
}

class Changes : public InEmptyFolder, public testing::WithParamInterface<size_t> {};

TEST_P(Changes, EqualOneDevice) {
  const auto [a, b] = changes()[GetParam()];
  SCOPED_TRACE(a.describe() + "\n" + a.schedule() + "\n" + b.describe() + "\n" + b.schedule());
  const Subject subject{a.kind, a.layers()};
  const TrainSettings settings = usual_settings(subject);
  const TrainableModel& model = model_of(subject);
  const Ended run = train_in_parts(model, {part_of(subject, a, 2), part_of(subject, b, 1)}, settings, "run");
  const Ended expected =
      train_in_parts(model, {one_device_like(subject, a, 2), one_device_like(subject, b, 1)}, settings, "expected");
  const Difference worst = compare(run, expected);
  EXPECT_LE(worst.error, 1e-12) << worst.where;
}
/// A sample of them; every sixth changes every model, timeline and level of ZeRO; PIPER_LONG=1: all.
std::vector<size_t> every_change(size_t stride) {
  std::vector<size_t> out;
  for (size_t i = 0; i < changes().size(); i += std::getenv("PIPER_LONG") ? 1 : stride) out.push_back(i);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Some, Changes, testing::ValuesIn(every_change(18)),
                         [](const auto& info) { return fmt::format("{:03}", info.param); });
INSTANTIATE_TEST_SUITE_P(Thorough, Changes, testing::ValuesIn(every_change(6)),
                         [](const auto& info) { return fmt::format("{:03}", info.param); });

class Checkpoint : public InEmptyFolder {};

TEST_F(Checkpoint, GoesOnBitByBit) {
  for (const std::string kind : {"dropout", "mixture_dropout"}) {
    const Combination* chosen = nullptr;
    for (const Combination& c : pairwise_covering().trained)
      if (c.kind == kind && c.grid.devices() > 1) chosen = &c;
    ASSERT_TRUE(chosen);
    SCOPED_TRACE(chosen->describe());
    const Subject subject{kind, chosen->layers()};
    const TrainSettings settings = usual_settings(subject);
    const Ended whole = train_in_parts(model_of(subject), {part_of(subject, *chosen, 4)}, settings, "whole");
    const Ended parts =
        train_in_parts(model_of(subject), {part_of(subject, *chosen, 1), part_of(subject, *chosen, 3)}, settings, kind);
    EXPECT_EQ(parts.losses, whole.losses);
    for (const auto& [name, tensor] : whole.state) EXPECT_TRUE(at::equal(parts.state.at(name), tensor)) << name;
  }
}

/// bfloat16 weights with master copies: two files of state for each parameter more.
TEST_F(Checkpoint, KeepsMasterCopies) {
  const Subject subject{.kind = "dense", .dtype = DType::BFloat16, .gradients = DType::Float32};
  const TrainSettings settings = usual_settings(subject);
  const auto one = [&](int64_t steps) { return part_of(subject, in_turn(4), 4, steps); };
  const Ended whole = train_in_parts(model_of(subject), {one(3)}, settings, "whole");
  const Ended parts = train_in_parts(model_of(subject), {one(1), one(2)}, settings, "parts");
  EXPECT_EQ(parts.losses, whole.losses);
  for (const auto& [name, tensor] : whole.state) EXPECT_TRUE(at::equal(parts.state.at(name), tensor)) << name;
}

/// The first values of mixtures, saved under every plan of the covering, or one of `stride`.
void expect_equal_first_values(size_t stride) {
  std::vector<Combination> mixtures;
  for (const Combination& c : pairwise_covering().trained)
    if (c.kind == "mixture" && c.layers() == 4) mixtures.push_back(c);
  std::map<std::string, std::string> expected;
  size_t compared = 0;
  for (const Combination& c : every(stride, mixtures)) {
    const Subject subject{c.kind, c.layers()};
    const std::string folder = fmt::format("{}", compared);
    train_part(model_of(subject), part_of(subject, c, 0), usual_settings(subject), 0, "", folder);
    const auto here = tensors_in(folder + "/step-00000000");
    if (compared++ == 0) expected = here;
    EXPECT_EQ(here, expected) << c.schedule();
  }
  EXPECT_GT(compared, 3u);
  EXPECT_GT(expected.size(), 3u);
}
TEST_F(Checkpoint, DoesNotDependOnThePlan) {
  expect_equal_first_values(4);
}
using ThoroughCheckpoint = Checkpoint;
TEST_F(ThoroughCheckpoint, DoesNotDependOnThePlan) {
  expect_equal_first_values(1);
}

/// Names, types and shapes are compared before anything is read.
TEST_F(Checkpoint, OfAnotherModelIsRefused) {
  const Subject small{.kind = "dense", .layers = 1}, other{.kind = "tied", .layers = 1};
  const Subject narrow{.kind = "dense", .layers = 1, .dtype = DType::Float32};
  train_part(model_of(small), part_of(small, in_turn(1), subject_batch, 0), usual_settings(small), 0, "", ".");
  const auto refusal = [&](const Subject& subject) -> std::string {
    try {
      const RunPart one = part_of(subject, in_turn(1), subject_batch, 0);
      train_part(model_of(subject), one, usual_settings(subject), 0, "step-00000000", "");
    } catch (const std::runtime_error& problem) {
      return problem.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(small), "");
  expect_golden("E904_type", refusal(narrow));
  expect_golden("E904_surplus", refusal(other));
}

const std::string context_in_pipeline =
    "mesh(pp=2, cp=2)\nplace({}, along=pp, stages=2)\nreplicate({}, along=cp, zero=2)\n"
    "shard({}, along=cp, sequence=gather)\nuse 1f1b(stages=stage, microbatches=mb)\n";

const std::string dropless_on_two =
    "mesh(ep=2)\n" + whole + "replicate({}, along=ep)\nshard({experts=*}, along=ep, buffer=0.25)\n";
const std::string dropless_in_pipeline =
    "mesh(pp=2, ep=2)\nplace({}, along=pp, stages=4, shape=v)\nreplicate({}, along=ep, zero=2, bucket=1KB)\n"
    "shard({experts=*}, along=ep, buffer=0.25)\nuse dualpipev(stages=stage, microbatches=mb)\n";

struct TpChange {
  std::string model, first, second;
  int slices = 4;
};
class TpChanges : public InEmptyFolder, public testing::WithParamInterface<TpChange> {};

TEST_P(TpChanges, EqualOneDevice) {
  const TpChange& change = GetParam();
  TpCase c{"change", change.model, 4, 4, ""};
  c.tokens = 8;  // enough for context parallelism to divide them
  const TrainableModel model = model_of(c);
  std::vector<PreparedTraining> keep;
  const auto part = [&](const std::string& schedule, int64_t steps) {
    keep.push_back(prepared(model, "split(batch, parts=4, as=mb)\n" + schedule));
    return RunPart{keep.back().captured.get(), keep.back().plan, steps};
  };
  const Ended run = train_in_parts(model, {part(change.first, 2), part(change.second, 1)}, settings(c), "run");
  keep.push_back(prepared(model, in_turn(change.slices)));
  const RunPart one = {keep.back().captured.get(), keep.back().plan, 3};
  const Ended expected = train_in_parts(model, {one}, settings(c), "one");
  const Difference worst = compare(run, expected);
  EXPECT_LE(worst.error, 1e-12) << worst.where;
}
INSTANTIATE_TEST_SUITE_P(
    Meshes, TpChanges,
    testing::Values(TpChange{"grouped", "mesh(tp=2)\n" + whole + everything,
                             "mesh(pp=2, tp=2)\nplace({}, along=pp, stages=2)\n" + tensor_parallel +
                                 "use 1f1b(stages=stage, microbatches=mb)\n"},
                    TpChange{"reference", "mesh(tp=4)\n" + whole + tensor_parallel, "mesh(tp=2)\n" + whole + sequence},
                    TpChange{"normed_keys",
                             "mesh(pp=2)\nplace({}, along=pp, stages=2)\n"
                             "use gpipe(stages=stage, microbatches=mb)\n",
                             "mesh(tp=2)\n" + whole + vocabulary},
                    TpChange{"grouped", "mesh(tp=2)\n" + whole + sequence, context_in_pipeline},
                    TpChange{"one_key", context_in_pipeline, "mesh(tp=2)\n" + whole + everything},
                    TpChange{"dropless", dropless_on_two,
                             "mesh(pp=2, dp=2)\nplace({}, along=pp, stages=2)\n"
                             "replicate({}, along=dp, zero=3)\n"
                             "use 1f1b(stages=stage, microbatches=mb)\n",
                             8},
                    TpChange{"dropless", "mesh(dp=2)\n" + whole + "replicate({}, along=dp, zero=3)\n",
                             dropless_in_pipeline, 8}),
    [](const auto& info) { return fmt::format("{}_{}", info.param.model, info.index); });

}  // namespace
}  // namespace piper
