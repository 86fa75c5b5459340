// Which devices keep the same from step to step.
#include "plan/lasting_state.h"

#include <gtest/gtest.h>

#include "../compiled_examples.h"

namespace piper {
namespace {

Plan plan_of(const std::string& schedule) {
  auto compiled = examples::compile({"schedule", schedule});
  if (!compiled) throw std::runtime_error(render(compiled.error()));
  return compiled->plan;
}

std::string replicas(int zero) {
  return fmt::format(
      "mesh(pp=2, dp=2)\nsplit(batch, parts=4, as=mb)\nplace({{}}, along=pp, stages=2)\n"
      "replicate({{}}, along=dp, zero={})\nuse 1f1b(stages=stage, microbatches=mb)\n",
      zero);
}

/// Devices 0 and 1 are the replicas of the first stage, 2 and 3 those of the second.
TEST(LastingState, ReplicasKeepTheSameAndStagesDoNot) {
  const Plan plan = plan_of(replicas(0));
  for (int one = 0; one < 4; ++one)
    for (int other = 0; other < 4; ++other) EXPECT_EQ(keep_the_same(plan, one, other), one / 2 == other / 2);
}

/// Of ZeRO-1 moments are divided, of ZeRO-3 weights too.
TEST(LastingState, WhatZeroDividesIsKeptOnce) {
  for (int zero = 1; zero <= 3; ++zero) {
    const Plan plan = plan_of(replicas(zero));
    for (int other = 1; other < 4; ++other) EXPECT_FALSE(keep_the_same(plan, 0, other)) << zero << " " << other;
    EXPECT_TRUE(keep_the_same(plan, 0, 0));
  }
}

/// All else is the same on both, and they have one program.
TEST(LastingState, DividedExpertsAreNotTheSame) {
  const Plan plan = plan_of("mesh(dp=2)\nplace({}, mesh={})\nreplicate({}, along=dp)\nshard({experts=*}, along=dp)\n");
  EXPECT_EQ(template_of_device(plan)[0], template_of_device(plan)[1]);
  EXPECT_FALSE(keep_the_same(plan, 0, 1));
}

TEST(LastingState, IsWeightsAndWhatTheOptimizerKeeps) {
  const Plan plan = plan_of(replicas(0));
  const PlanTemplate& program = plan.templates[template_of_device(plan)[0]];
  int64_t weights = 0, optimizer = 0;
  for (const BufferId b : lasting_state(program))
    (program.buffers[b].category == Category::Weights ? weights : optimizer) += program.buffers[b].bytes;
  EXPECT_GT(weights, 0);
  EXPECT_EQ(optimizer, 2 * weights);  // two moments of AdamW
}

}  // namespace
}  // namespace piper
