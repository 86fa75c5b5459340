// Hints of piper simulate and piper check are true: what they promise is what the changed schedule takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "run_piper.h"

namespace piper::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::string pipeline(const std::string& mesh, const std::string& use, const std::string& shape = "loop",
                     int stages = 2) {
  return "mesh(" + mesh + ")\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=" + std::to_string(stages) +
         ", shape=" + shape + ")\nreplicate({}, along=dp, zero=1)\nuse " + use + "(stages=stage, microbatches=mb)\n";
}

class Hints : public ::testing::Test {
 protected:
  /// `simulate` of a schedule as JSON; the rest of the arguments are added.
  json simulated(const std::string& schedule, const std::string& more = "") {
    const ProgramResult result = run(schedule, "--format json " + more);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return json::parse(result.output);
  }
  ProgramResult run(const std::string& schedule, const std::string& more, const std::string& command = "simulate") {
    write_file(folder_ + "/a.piper", schedule);
    return run_piper(command + " " + root + "/examples/moe.toml a.piper --cluster h100 " + more, folder_);
  }
  static std::string with(const json& hint) {
    std::string out;
    for (const auto& directive : hint["instead"]) out += " --with '" + directive.get<std::string>() + "'";
    return out;
  }
  std::string folder_ = temporary_folder();
};

TEST_F(Hints, AnotherOrderOfAxesKeepsCommunicationInNodes) {
  const std::string across = pipeline("dp=8, pp=2", "1f1b");
  const json step = simulated(across);
  ASSERT_TRUE(step.contains("hints"));
  const json& hint = step["hints"][0];
  EXPECT_EQ(hint["instead"], (json{"mesh(pp=2, dp=8)"}));
  EXPECT_THAT(hint["why"].get<std::string>(), HasSubstr("over nvlink instead of infiniband"));
  EXPECT_LT(hint["seconds"].get<double>(), step["seconds"].get<double>());
  EXPECT_EQ(simulated(across, with(hint))["seconds"], hint["seconds"]);
  const ProgramResult text = run(across, "");
  EXPECT_THAT(text.output, HasSubstr("moe.toml a.piper --cluster h100 --with 'mesh(pp=2, dp=8)'\n"));
  EXPECT_THAT(run(across, "--no-hints").output, Not(HasSubstr("hint")));
}

TEST_F(Hints, AnotherTimelineFillsABubble) {
  const std::string idle = pipeline("pp=4, dp=2", "gpipe", "loop", 4);
  const json step = simulated(idle);
  ASSERT_TRUE(step.contains("hints"));
  const json& hint = step["hints"].back();
  EXPECT_THAT(hint["why"].get<std::string>(), HasSubstr("ranks wait less for each other"));
  const json changed = simulated(idle, with(hint));
  EXPECT_EQ(changed["seconds"], hint["seconds"]);
  EXPECT_LT(changed["bubble"].get<double>(), step["bubble"].get<double>());
  EXPECT_THAT(run(idle, "", "check").output, HasSubstr("\nhint: "));
  EXPECT_EQ(json::parse(run(idle, "--format json", "check").output)["hints"], step["hints"]);
}

/// Hints end: what is left has none that is worth a line.
TEST_F(Hints, NoneWhereNothingIsBetter) {
  EXPECT_FALSE(simulated("devices(1)\nsplit(batch, parts=32, as=mb)\nplace({}, devices=[0])\n").contains("hints"));
  EXPECT_FALSE(simulated("mesh(dp=8)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=1)\n").contains("hints"));
  std::string changes;
  json step = simulated(pipeline("dp=4, pp=4", "gpipe", "loop", 4));
  double seconds = step["seconds"];
  for (int i = 0; i < 10 && step.contains("hints"); ++i) {
    changes += with(step["hints"][0]);
    step = simulated(pipeline("dp=4, pp=4", "gpipe", "loop", 4), changes);
    EXPECT_LT(step["seconds"].get<double>(), seconds);
    seconds = step["seconds"];
  }
  EXPECT_FALSE(step.contains("hints"));
}

TEST_F(Hints, AReplacedDirectiveIsTheOnlyOne) {
  const ProgramResult none = run(pipeline("pp=4, dp=2", "1f1b", "loop", 4), "--with 'recompute({layer=*})'");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.errors, HasSubstr("the schedule has no recompute that this could replace"));
  const ProgramResult two = run(pipeline("pp=4, dp=2", "1f1b", "loop", 4) + "prefetch({comm=gather}, distance=1)\n" +
                                    "prefetch({comm=gather, layer=3}, distance=2)\n",
                                "--with 'prefetch({comm=gather}, distance=3)'");
  EXPECT_EQ(two.exit_code, 1);
  EXPECT_THAT(two.errors, HasSubstr("the schedule has 2 of prefetch"));
}

}  // namespace
}  // namespace piper::testing
