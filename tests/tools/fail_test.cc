// piper simulate --fail: the price of a loss is what the schedule that is shown costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "run_piper.h"

namespace piper::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string losing = "simulate examples/moe.toml examples/dualpipe.piper --cluster h100 ";

json failing(const std::string& which) {
  const ProgramResult result = run_piper(losing + "--format json --fail " + which, root);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return json::parse(result.output);
}

TEST(Fail, ThePriceIsThatOfTheScheduleShown) {
  const json answer = failing("3"), whole = json::parse(run_piper(losing + "--format json", root).output);
  EXPECT_EQ(answer["version"], 1);
  EXPECT_EQ(answer["seconds"], whole["seconds"]);
  ASSERT_EQ(answer["losses"].size(), 1u);
  const json& loss = answer["losses"][0];
  EXPECT_EQ(loss["devices"], json({3}));
  EXPECT_DOUBLE_EQ(loss["difference"].get<double>(),
                   loss["seconds"].get<double>() / answer["seconds"].get<double>() - 1);
  const std::string folder = temporary_folder();
  write_file(folder + "/shrunken.piper", loss["schedule"]);
  const ProgramResult again =
      run_piper("simulate " + root + "/examples/moe.toml shrunken.piper --cluster h100 --format json", folder);
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  const json step = json::parse(again.output);
  EXPECT_EQ(step["seconds"], loss["seconds"]);
  EXPECT_EQ(step["peak_bytes"], loss["peak_bytes"]);
  EXPECT_EQ(step["batch"], whole["batch"]);
  EXPECT_EQ(step["lost"], json({3}));
  for (const auto& device : step["devices"]) EXPECT_THAT(device["devices"], ::testing::Not(::testing::Contains(3)));
}

TEST(Fail, EachLossStandsForItsKind) {
  const json losses = failing("each")["losses"];
  std::vector<int> all;
  for (const json& loss : losses) {
    for (const int device : loss["devices"]) all.push_back(device);
    EXPECT_EQ(loss["seconds"], failing(std::to_string(loss["devices"][0].get<int>()))["losses"][0]["seconds"]);
  }
  EXPECT_THAT(all, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(Fail, SaysWhatItCannotDo) {
  const auto errors = [](const std::string& options) { return run_piper(losing + options, root).errors; };
  EXPECT_THAT(errors("--fail x"), HasSubstr("error[E105]: --fail: \"x\" is no list of devices"));
  EXPECT_THAT(errors("--fail 1,,2"), HasSubstr("E105"));
  EXPECT_THAT(errors("--fail 8"), HasSubstr("error[E205]: device 8 does not exist; there are devices 0 to 7"));
  EXPECT_THAT(errors("--fail 0,1,2,3,4,5,6,7"), HasSubstr("error[E319]: all 8 devices are lost"));
  EXPECT_EQ(run_piper(losing + "--fail 3 --trace x.json", root).exit_code, 2);
}

}  // namespace
}  // namespace piper::testing
