// piper search as a user runs it: its files, and Ctrl-C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "run_piper.h"

namespace piper::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string small =
    "search examples/moe.toml --cluster h100 --devices 8 --budget 100000 "
    "--fix 'mesh(pp=4, tp=1)' --fix 'split(batch, parts=8)' --fix 'replicate({}, along=dp, zero=1)' ";

TEST(SearchCommand, WritesAScheduleThatCheckReads) {
  const std::string folder = temporary_folder();
  const ProgramResult found = run_piper(small + "--format json -o " + folder + "/best.piper", root);
  ASSERT_EQ(found.exit_code, 0) << found.errors;
  const json best = json::parse(found.output)["best"];
  EXPECT_THAT(read_text(folder + "/best.piper"), HasSubstr("  # "));
  const std::string of_best = " examples/moe.toml " + folder + "/best.piper --cluster h100";
  const ProgramResult checked = run_piper("check" + of_best, root);
  EXPECT_EQ(checked.exit_code, 0) << checked.errors;
  EXPECT_THAT(checked.output, HasSubstr("(" + std::to_string(best["peak_bytes"].get<int64_t>()) + " bytes)"));
  EXPECT_EQ(json::parse(run_piper("simulate --format json" + of_best, root).output)["seconds"], best["seconds"]);
}

TEST(SearchCommand, PlotsAPictureOrAPage) {
  const std::string folder = temporary_folder();
  const ProgramResult found = run_piper(small + "--format json --plot " + folder + "/front.html", root);
  ASSERT_EQ(found.exit_code, 0) << found.errors;
  const json numbers = json::parse(found.output);
  const std::string page = read_text(folder + "/front.html");
  EXPECT_THAT(page, StartsWith("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("<h1>small-moe on 8 devices of h100, batch 32</h1>"));
  EXPECT_THAT(page, HasSubstr("mesh(pp=4, dp=2)"));
  size_t rows = 0;
  for (size_t at = page.find("<summary>"); at != std::string::npos; at = page.find("<summary>", at + 1)) ++rows;
  EXPECT_EQ(rows, numbers["front"].size());
  EXPECT_EQ(run_piper(small + "--plot " + folder + "/front.svg", root).exit_code, 0);
  const std::string picture = read_text(folder + "/front.svg");
  EXPECT_THAT(picture, StartsWith("<svg "));
  EXPECT_THAT(page, HasSubstr(picture)) << "the same in both";
}

TEST(SearchCommand, CtrlCGivesTheBestSoFar) {
  const std::string folder = temporary_folder();
  int code = 0;
  // as long as it takes to find something, on a machine of any speed
  for (const char* wait : {"1", "3", "9", "27", "81"}) {
    const std::string command = "cd '" + root + "' && timeout --preserve-status -s INT " + wait +
                                " '" PIPER_PROGRAM
                                "' search analytic:Llama-3-8B --cluster h100 --devices 64 --batch 256 --budget 100000 "
                                ">" +
                                folder + "/said 2>&1";
    code = std::system(command.c_str());
    if (code == 0) break;
  }
  EXPECT_EQ(code, 0);
  EXPECT_THAT(read_text(folder + "/said"), StartsWith("mesh("));
  // or nothing faster was left, and it was stopped while it looked for the best of other ideas
  EXPECT_THAT(read_text(folder + "/said"), ::testing::AnyOf(HasSubstr("; it was stopped before all were looked at"),
                                                            HasSubstr("; no other can be faster")));
}

}  // namespace
}  // namespace piper::testing
