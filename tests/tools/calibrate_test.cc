// piper calibrate, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cost/load_cluster.h"
#include "must.h"
#include "run_piper.h"

namespace piper::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// Some steps of the examples, "measured" with the given factor of what h100 predicts.
class Calibrate : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string table = "set,model,schedule,batch,seconds\n";
    for (const int batch : {32, 64, 128, 256}) {
      const std::string step = fmt::format("examples/moe.toml examples/dualpipe.piper --batch {}", batch);
      const ProgramResult result = run_piper("simulate " + step + " --cluster h100 --format json", root);
      ASSERT_EQ(result.exit_code, 0) << result.errors;
      table += fmt::format("moe,{}/examples/moe.toml,{}/examples/dualpipe.piper,{},{}\n", root, root, batch,
                           json::parse(result.output)["seconds"].get<double>() * 2);
    }
    write_file(table_, table);
  }

  const std::string folder_ = temporary_folder(), table_ = folder_ + "/steps.csv", fitted_ = folder_ + "/fitted.toml";
};

TEST_F(Calibrate, WritesAClusterThatPredictsTheSteps) {
  const ProgramResult before = run_piper("calibrate " + table_ + " --cluster h100 --check --format json", root);
  ASSERT_EQ(before.exit_code, 0) << before.errors;
  EXPECT_NEAR(json::parse(before.output)["errors"][0]["bias"].get<double>(), -0.5, 1e-6);
  const ProgramResult fit = run_piper("calibrate " + table_ + " --cluster h100 -o " + fitted_, root);
  ASSERT_EQ(fit.exit_code, 0) << fit.errors;
  EXPECT_THAT(fit.output, HasSubstr("h100 operators.issue"));
  EXPECT_TRUE(must(load_cluster(fitted_)).kinds[0].operators);
  const ProgramResult after =
      run_piper("calibrate " + table_ + " --cluster " + fitted_ + " --check --format json", root);
  ASSERT_EQ(after.exit_code, 0) << after.errors;
  EXPECT_LT(json::parse(after.output)["errors"][0]["mean_error"].get<double>(), 0.05);
}

TEST_F(Calibrate, RefusalsNameTheStep) {
  write_file(table_, "model,schedule,seconds\nno_such.toml,x.piper,1\n");
  const ProgramResult result = run_piper("calibrate " + table_ + " --cluster h100", root);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("E108"));
  EXPECT_THAT(result.errors, HasSubstr("steps.csv:2:1: note: of this step"));
  EXPECT_EQ(run_piper("calibrate " + table_, root).exit_code, 2) << "the fit begins somewhere";
}

}  // namespace
}  // namespace piper::testing
