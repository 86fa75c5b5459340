// What the frees of a plan mean for the two ways in which memory is kept.
#include "plan/free_order.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "../compiled_examples.h"
#include "plan/plan_text.h"

namespace piper {
namespace {

constexpr PlanStreamId compute(0), comm(1);

/// Device 0 computes on two streams and sends to device 1 and to itself.
Plan plan_with(const std::string& operations) {
  auto plan = parse_plan(make_source("plan",
                                     "plan small costs=0\n"
                                     "stream compute\nstream comm\n"
                                     "name a\nname x\n"
                                     "group [0]\ngroup [1]\n"
                                     "communication x transfer 0 -> 1 bytes=8\n"
                                     "template [0]\nbuffer 0 activations 8 x\nbuffer 1 activations 8 x\n" +
                                         operations));
  if (!plan) throw std::runtime_error(render(plan.error()));
  return *std::move(plan);
}

FreeOrder by_stream(const Plan& plan, bool inputs_are_there = true) {
  return frees_by_stream(plan.templates[TemplateId(0)], inputs_are_there);
}

std::vector<OpId> ops(std::initializer_list<int> list) {
  std::vector<OpId> out;
  for (const int op : list) out.emplace_back(op);
  return out;
}

TEST(FreeOrder, APoolTakesBuffersBackWhereThePlanSays) {
  const Plan plan = plan_with(
      "op 0 run a on compute writes(%0)\n"
      "op 1 run a on comm waits(0) reads(%0) writes(%1) frees(%0, %1)\n");
  const FreeOrder order = frees_to_pool(plan.templates[TemplateId(0)]);
  EXPECT_TRUE(order.frees[OpId(0)].empty());
  ASSERT_EQ(order.frees[OpId(1)].size(), 1U);
  EXPECT_FALSE(order.frees[OpId(1)][0].stream.valid());
  EXPECT_EQ(order.frees[OpId(1)][0].buffers, (std::vector{BufferId(0), BufferId(1)}));
}

TEST(FreeOrder, TheStreamThatTookABufferWaitsForItsUsersOnOthers) {
  const Plan plan = plan_with(
      "op 0 run a on compute writes(%0)\n"
      "op 1 run a on comm waits(0) reads(%0) writes(%1)\n"
      "op 2 run a on comm reads(%0)\n"
      "op 3 run a on compute reads(%0) frees(%0, %1)\n");
  const std::vector<BufferFree> frees = by_stream(plan).frees[OpId(3)];
  ASSERT_EQ(frees.size(), 2U);
  EXPECT_EQ(frees[0].stream, compute);
  EXPECT_EQ(frees[0].buffers, std::vector{BufferId(0)});
  EXPECT_EQ(frees[0].after, ops({2}));  // the last one on that stream is enough
  EXPECT_EQ(frees[1].stream, comm);
  EXPECT_EQ(frees[1].buffers, std::vector{BufferId(1)});
  EXPECT_TRUE(frees[1].after.empty());
}

TEST(FreeOrder, WhatIsSentIsKeptUntilItHasBeenRead) {
  const Plan plan = plan_with(
      "op 0 run a on compute writes(%0)\n"
      "op 1 send x on compute communication=0 reads(%0) frees(%0)\n");
  const std::vector<BufferFree> frees = by_stream(plan).frees[OpId(1)];
  ASSERT_EQ(frees.size(), 1U);
  EXPECT_EQ(frees[0].after, ops({1}));  // although it is on the same stream: the other device reads the buffer
}

TEST(FreeOrder, ReadersOfAnInputWaitForTheOneThatLoadsIt) {
  const Plan plan = plan_with(
      "op 0 run a on compute reads(%0) writes(%1)\n"
      "op 1 run a on comm waits(0) reads(%0, %1)\n"
      "op 2 run a on compute reads(%0, %1) frees(%0, %1)\n");
  EXPECT_EQ(by_stream(plan, false).loaders[OpId(1)], ops({0}));  // %0, which nothing writes, and not %1
  EXPECT_TRUE(by_stream(plan, false).loaders[OpId(2)].empty());
  EXPECT_TRUE(by_stream(plan, true).loaders[OpId(1)].empty());
}

/// Every buffer that the plan frees, behind the same operation.
TEST(FreeOrder, BothWaysFreeWhatThePlanFrees) {
  for (const examples::Example& example : examples::all()) {
    const auto compiled = examples::compile(example);
    ASSERT_TRUE(compiled) << example.name;
    for (const PlanTemplate& program : compiled->plan.templates)
      for (const FreeOrder& order : {frees_to_pool(program), frees_by_stream(program, false)})
        for (const OpId op : program.ops.ids()) {
          std::vector<BufferId> freed, planned = program.ops[op].frees;
          for (const BufferFree& free : order.frees[op])
            freed.insert(freed.end(), free.buffers.begin(), free.buffers.end());
          std::ranges::sort(freed);
          std::ranges::sort(planned);
          EXPECT_EQ(freed, planned) << example.name << " op " << op.value;
        }
  }
}

}  // namespace
}  // namespace piper
