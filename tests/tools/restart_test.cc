// What a job is given when it starts again after a failure.
#include "tools/restart.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

namespace piper::testing {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names(const std::vector<Host>& hosts) {
  std::vector<std::string> out;
  for (const Host& host : hosts) out.push_back(host.name);
  return out;
}

TEST(Restart, LeavesOutTheHostsToBlame) {
  const std::vector<Host> hosts = {{"a", "", {}}, {"b", "", {}}, {"c", "", {}}, {"d", "", {}}};
  EXPECT_THAT(names(without(hosts, {}, 4)), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(names(without(hosts, {"b"}, 3)), ElementsAre("a", "c", "d"));
  EXPECT_THAT(names(without(hosts, {"b", "d"}, 2)), ElementsAre("a", "c"));
  EXPECT_THAT(names(without(hosts, {"e"}, 2)), ElementsAre("a", "b", "c", "d"));
}

TEST(Restart, KeepsAllHostsWhereTooFewWouldBeLeft) {
  const std::vector<Host> hosts = {{"a", "2", {}}, {"b", "2", {}}, {"c", "1", {}}};
  EXPECT_THAT(names(without(hosts, {"c"}, 4)), ElementsAre("a", "b"));
  EXPECT_THAT(names(without(hosts, {"b"}, 4)), ElementsAre("a", "b", "c"));
  EXPECT_THAT(names(without(hosts, {"b"}, 3)), ElementsAre("a", "c"));
}

TEST(Restart, KnowsAHostWithAndWithoutItsDomain) {
  const std::vector<Host> hosts = {
      {"node1.cluster", "", {}}, {"node2.cluster", "", {}}, {"10.0.0.3", "", {}}, {"10.0.0.4", "", {}}};
  EXPECT_THAT(names(without(hosts, {"node2"}, 2)), ElementsAre("node1.cluster", "10.0.0.3", "10.0.0.4"));
  EXPECT_THAT(names(without(hosts, {"10.0.0.3"}, 2)), ElementsAre("node1.cluster", "node2.cluster", "10.0.0.4"));
  EXPECT_THAT(names(without({{"node1", "", {}}, {"node2", "", {}}}, {"node2.cluster"}, 1)), ElementsAre("node1"));
}

TEST(Restart, ResumesWithoutThePlantedFault) {
  EXPECT_THAT(resuming({"c.toml", "--fault", "kill:1:5", "--checkpoints", "run"}),
              ElementsAre("c.toml", "--checkpoints", "run", "--resume"));
  EXPECT_THAT(resuming({"c.toml", "--resume=run/step-00000001", "--fault=kill:1:5"}),
              ElementsAre("c.toml", "--resume"));
}

TEST(Restart, NamesTheNewestCheckpoint) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "newest_checkpoint";
  std::filesystem::remove_all(folder);
  const auto said = [&] { return newest_checkpoint({"no.toml", "--checkpoints", folder.string()}); };
  EXPECT_EQ(said(), fmt::format("piper: there is no checkpoint in {} to resume from\n", folder.string()));
  for (const char* name : {"step-00000003", "step-00000012", "step-00000015.partial"})
    std::filesystem::create_directories(folder / name);
  EXPECT_EQ(said(),
            fmt::format("piper: the newest checkpoint is {}/step-00000012; --resume takes it\n", folder.string()));
  EXPECT_EQ(newest_checkpoint({"no.toml"}), "");
}

TEST(Restart, SaysWhatItCost) {
  Supervised failed, again;
  failed.last_step = 12;
  failed.times.last_step_known = 10.0;
  failed.times.failed = 12.0;
  failed.times.ended = 12.5;
  again.first_step = 8;
  again.times.begun = 14.0;
  again.times.first_step_known = 17.0;
  again.times.second_step_known = 17.5;
  EXPECT_EQ(
      describe_restart(1, 3, failed, again),
      "restart 1 of 3: resumes after step 8, repeats 4 steps, noticed within 2.00 s, ended 500 ms, started 1.50 s, "
      "planned and read 3.00 s, first step 500 ms\n");
}

}  // namespace
}  // namespace piper::testing
