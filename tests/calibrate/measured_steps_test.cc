// Tables of measured steps, and what is refused of them.
#include "calibrate/measured_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "must.h"

namespace piper {
namespace {

using ::testing::HasSubstr;

TEST(MeasuredSteps, FilesAreFoundFromTheTable) {
  const auto steps = must(parse_measured_steps(make_source("runs/steps.csv",
                                                           "# comment\nset, model, schedule, batch, sequence, seconds\n"
                                                           "one node,m.toml,/s.piper,8,,0.5\n\n"
                                                           "many,analytic:Llama-3-8B,s.piper,,4096,1e-3\r\n")));
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].set, "one node");
  EXPECT_EQ(steps[0].model, "runs/m.toml");
  EXPECT_EQ(steps[0].schedule, "/s.piper");
  EXPECT_EQ(steps[0].batch, 8);
  EXPECT_EQ(steps[0].sequence, std::nullopt);
  EXPECT_EQ(steps[0].seconds, 0.5);
  EXPECT_EQ(steps[1].model, "analytic:Llama-3-8B");
  EXPECT_EQ(steps[1].sequence, 4096);
  EXPECT_EQ(steps[1].seconds, 1e-3);
}

std::string refusal(const std::string& text) {
  auto steps = parse_measured_steps(make_source("steps.csv", text));
  return steps ? "accepted" : render(steps.error());
}

TEST(MeasuredSteps, RefusalsNameTheCell) {
  EXPECT_THAT(refusal(""), HasSubstr("error[E101]: no measured steps"));
  EXPECT_THAT(refusal("model,schedul\na,b\n"), HasSubstr("steps.csv:1:7: error[E104]: there is no column \"schedul\""));
  EXPECT_THAT(refusal("model,schedul\na,b\n"), HasSubstr("did you mean \"schedule\"?"));
  EXPECT_THAT(refusal("model,model\na,b\n"), HasSubstr("column \"model\" is there twice"));
  EXPECT_THAT(refusal("model,seconds\na,1\n"), HasSubstr("column \"schedule\" is missing"));
  EXPECT_THAT(refusal("model,schedule,seconds\na,b\n"), HasSubstr("steps.csv:2:1: error[E101]: 2 cells"));
  EXPECT_THAT(refusal("model,schedule,seconds\na,b,-1\n"), HasSubstr("steps.csv:2:5: error[E102]: seconds must be"));
  EXPECT_THAT(refusal("model,schedule,seconds\na,b,1s\n"), HasSubstr("error[E102]"));
  EXPECT_THAT(refusal("model,schedule,batch,seconds\na,b,0,1\n"), HasSubstr("batch must be a number above 0"));
  EXPECT_THAT(refusal("model,schedule,seconds\n,b,1\n"), HasSubstr("a step needs a model and a schedule"));
  EXPECT_THAT(refusal("model,schedule,seconds,costs\na,b,1,c\n"), HasSubstr("either seconds or costs"));
  EXPECT_THAT(refusal("model,schedule,seconds,costs\na,b,,\n"), HasSubstr("either seconds or costs"));
}

}  // namespace
}  // namespace piper
