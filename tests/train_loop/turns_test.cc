// Devices that take turns: what `piper profile` measures on a GPU, here on threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/loop/local_cluster.h"
#include "train_loop/subjects.h"
#include "train_loop/wrappers.h"

namespace piper {
namespace {

const std::string schedule =
    "mesh(pp=2, dp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\nreplicate({}, along=dp, zero=1)\n"
    "use 1f1b(stages=stage, microbatches=mb)\n";

TEST(Turns, ComputationsRunOneAtATimeAndGiveTheSameBits) {
  const Subject subject{.kind = "dense"};
  const CapturedModel& model = captured(subject, {2});
  auto compiled = compile_for(model, schedule);
  ASSERT_TRUE(compiled) << render(compiled.error());
  const auto plan = std::make_shared<const Plan>(compiled->plan);
  Turns turns;
  std::atomic<int> in_progress = 0, most = 0;
  TrainSettings settings = usual_settings(subject);
  const Trained side_by_side = train(model_of(subject), model, plan, settings);
  settings.job.run.turns = &turns;
  settings.computations = [&](Computations& in) {
    return intervene(in, [&](const ComputationSite&, const ComputationArguments& arguments, const auto& as_usual) {
      most = std::max(most.load(), ++in_progress);
      as_usual(arguments);
      --in_progress;
    });
  };
  const Trained in_turns = train(model_of(subject), model, plan, settings);
  EXPECT_EQ(most, 1);
  EXPECT_EQ(in_turns.losses, side_by_side.losses);
  EXPECT_EQ(in_turns.bits, side_by_side.bits);
}

/// The file that `piper profile` writes says how many computations run at once.
TEST(LocalCluster, DevicesShareCores) {
  const auto shared = [](const LocalDevices& devices) {
    auto cluster = parse_cluster(make_source("cluster.toml", local_cluster_text({1e-6, 1e9}, devices)));
    EXPECT_TRUE(cluster) << render(cluster.error());
    return shared_processor(*cluster, 0);
  };
  EXPECT_FALSE(shared({.count = 4, .threads = 1, .cores = 4}));
  EXPECT_FALSE(shared({.count = 1, .threads = 2, .cores = 8}));
  const auto four_on_three = shared({.count = 4, .threads = 1, .cores = 3});
  ASSERT_TRUE(four_on_three);
  EXPECT_EQ(four_on_three->first, 0);
  EXPECT_EQ(four_on_three->together, 3);
  EXPECT_EQ(shared({.count = 3, .threads = 2, .cores = 3})->together, 1.5);
  EXPECT_EQ(shared({.count = 2, .threads = 4, .cores = 1})->together, 1);
}

TEST(Turns, GainOfSeveralComputationsAtOnce) {
  EXPECT_EQ(gain_together(2, {{0, 1}, {1, 2}}), std::nullopt);
  EXPECT_DOUBLE_EQ(*gain_together(2, {{0, 2}, {0, 2}}), 1);
  EXPECT_DOUBLE_EQ(*gain_together(2, {{0, 1.6}, {0, 1.6}}), 1.25);
  // the first second alone, then two, then three
  EXPECT_DOUBLE_EQ(*gain_together(1 + 1.5 * 2, {{0, 3}, {1, 3}, {2, 3}}), 1.5);
}

}  // namespace
}  // namespace piper
