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

TEST(MeasuredSteps, AreKernelsToo) {
  const auto rows = must(parse_measured_steps(make_source("kernels.csv",
                                                          "dtype,product,bytes,seconds\n"
                                                          "bfloat16,4096x11008x512,,5e-4\n"
                                                          "float32,32x8x16x4,,1e-6\n,,1000,2e-6\n")));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].kernel->product, (MatrixProduct{1, 4096, 11008, 512}));
  EXPECT_EQ(rows[0].kernel->dtype, DType::BFloat16);
  EXPECT_EQ(rows[1].kernel->product, (MatrixProduct{32, 8, 16, 4}));
  EXPECT_EQ(rows[1].kernel->dtype, DType::Float32);
  EXPECT_EQ(rows[2].kernel->product, std::nullopt);
  EXPECT_EQ(rows[2].kernel->bytes, 1000);
  EXPECT_EQ(rows[2].seconds, 2e-6);
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
  EXPECT_THAT(refusal("product,seconds\n4x4,1\n"), HasSubstr("a product has 3 sizes, not 2"));
  EXPECT_THAT(refusal("product,seconds\n4x4x4x4x4,1\n"), HasSubstr("a product has 3 sizes, not 5"));
  EXPECT_THAT(refusal("product,seconds\n4x-4x4,1\n"), HasSubstr("a size of product must be a number above 0"));
  EXPECT_THAT(refusal("product,seconds\n4x4x,1\n"), HasSubstr("a size of product must be a number above 0"));
  EXPECT_THAT(refusal("dtype,product,seconds\nbf17,4x4x4,1\n"), HasSubstr("there is no dtype \"bf17\""));
  EXPECT_THAT(refusal("product,bytes,seconds\n4x4x4,8,1\n"), HasSubstr("either product or bytes"));
  EXPECT_THAT(refusal("dtype,product,bytes,seconds\nfloat32,,,1\n"), HasSubstr("either product or bytes"));
  EXPECT_THAT(refusal("product,seconds\n4x4x4,\n"), HasSubstr("a kernel needs seconds"));
  EXPECT_THAT(refusal("model,schedule,product,seconds\na,b,4x4x4,1\n"), HasSubstr("not both"));
  EXPECT_THAT(refusal("model,schedule,product,seconds\na,b,,1\na,,,1\n"), HasSubstr("a step needs a model"));
}

}  // namespace
}  // namespace piper
