#include "train/memory_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/golden_text.h"
#include "train/in_empty_folder.h"

namespace piper {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr int64_t gib = int64_t{1} << 30;

TEST(MemoryClaims, WhatFits) {
  EXPECT_TRUE(check_memory({}));
  EXPECT_TRUE(check_memory({{"this process", 4 * gib, {{"node7", 4 * gib}}}}));
  EXPECT_TRUE(check_memory({{"this process", 4 * gib, {}}}));  // of nothing that is known
  // in control groups of their own, or on other hosts
  EXPECT_TRUE(check_memory(
      {{"0", 4 * gib, {{"a", 9 * gib}, {"a/x", 5 * gib}}}, {"1", 4 * gib, {{"a", 9 * gib}, {"a/y", 5 * gib}}}}));
  EXPECT_TRUE(check_memory({{"0", 4 * gib, {{"a", 5 * gib}}}, {"1", 4 * gib, {{"b", 5 * gib}}}}));
}

TEST(MemoryClaims, TooMuch) {
  auto refused = check_memory({{"this process", 385 * gib, {{"node7", 12 * gib}}}});
  ASSERT_FALSE(refused);
  expect_golden("E405_machine", render(refused.error()));
}

TEST(MemoryClaims, TooMuchTogether) {
  const MemoryClaim first{"rank 0 on node7", 8 * gib, {{"node7", 12 * gib}}},
      second{"rank 1 on node7", 6 * gib, {{"node7", 11 * gib}}};
  ASSERT_TRUE(check_memory({first}) && check_memory({second}));
  auto refused = check_memory({first, second});
  ASSERT_FALSE(refused);
  expect_golden("E405_host", render(refused.error()));
}

TEST(MemoryClaims, TheLastStepsCount) {
  const MemoryClaim fits{"rank 0 on node7", 8 * gib, {{"node7", 12 * gib}}, 1 * gib, 3 * gib};
  EXPECT_TRUE(check_memory({fits}));
  const MemoryClaim more{"rank 0 on node7", 8 * gib, {{"node7", 12 * gib}}, 1 * gib, 4 * gib};
  EXPECT_THAT(render(check_memory({more}).error()), HasSubstr("and 4.00 GiB for what they held after the last steps"));
}

TEST(MemoryClaims, CopiesOfASaveCount) {
  const MemoryClaim fits{"this process", 8 * gib, {{"node7", 12 * gib}}, 4 * gib};
  EXPECT_TRUE(check_memory({fits}));
  const MemoryClaim more{"this process", 8 * gib, {{"node7", 12 * gib}}, 5 * gib};
  const auto refused = check_memory({more});
  ASSERT_FALSE(refused);
  expect_golden("E405_copies", render(refused.error()));
  const MemoryClaim beside_a_gpu{"rank 0 on node7", 0, {{"node7", 12 * gib}}, 13 * gib};
  const auto of_copies = check_memory({beside_a_gpu});
  ASSERT_FALSE(of_copies);
  EXPECT_EQ(of_copies.error().message,
            "the copies of a save of rank 0 on node7 need 13.0 GiB; node7 has 12.0 GiB left");
}

class HostMemory : public InEmptyFolder {};

TEST_F(HostMemory, OfTheMachine) {
  write("proc/meminfo", "MemTotal:       100 kB\nMemAvailable:    60 kB\nSwapFree:    4 kB\n");
  EXPECT_THAT(host_memory("node7", "."), ElementsAre(Pair("node7", 64 * 1024)));
}

TEST_F(HostMemory, OfControlGroups) {
  write("proc/self/cgroup", "0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/memory.max", "max\n");
  write("sys/fs/cgroup/jobs/memory.current", "5000\n");
  write("sys/fs/cgroup/jobs/one/memory.max", "1000\n");
  write("sys/fs/cgroup/jobs/one/memory.current", "700\n");
  write("sys/fs/cgroup/jobs/one/memory.stat", "anon 300\nfile 400\nfile_mapped 9\n");
  EXPECT_THAT(host_memory("node7", "."), ElementsAre(Pair("the control group /jobs/one on node7", 700)));
}

TEST_F(HostMemory, OfControlGroupsOfTheFirstVersion) {
  write("proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/docker/abc\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n");  // a container sees only its own
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "500\n");
  write("sys/fs/cgroup/memory/memory.stat", "cache 50\ntotal_cache 100\n");
  EXPECT_THAT(host_memory("node7", "."), ElementsAre(Pair("the control group / on node7", 1600)));
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_THAT(host_memory("node7", "."), ElementsAre());
}

TEST_F(HostMemory, OfNothingThatCanBeRead) {
  EXPECT_THAT(host_memory("node7", "."), ElementsAre());
}

}  // namespace
}  // namespace piper
