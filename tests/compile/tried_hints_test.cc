// What a hint says is followed, and works.
#include "compile/tried_hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "base/bytes.h"
#include "base/read_file.h"
#include "model/model_text.h"
#include "plan/memory_report.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

std::shared_ptr<ModelGraph> four_layers() {
  auto file = read_file(PIPER_SOURCE_DIR "/tests/golden/models/four.model", "model");
  return std::make_shared<ModelGraph>(*parse_model(*file));
}
Result<Compiled> compiled(const std::shared_ptr<const ModelGraph>& model, const std::string& schedule,
                          const CompileOptions& options = {}) {
  return compile_with_hints(model, *parse_schedule(make_source("schedule", schedule)), options);
}
std::string captured_in(const std::string& text, const std::string& pattern) {
  std::smatch found;
  return std::regex_search(text, found, std::regex(pattern)) ? found[1].str() : "";
}

/// The batch of the hint, for devices and microbatches that all divide.
void expect_batch_that_divides(const std::string& schedule, int64_t batch) {
  SCOPED_TRACE(schedule);
  const auto model = four_layers();
  model->step.batch = batch;
  const auto refused = compiled(model, schedule);
  ASSERT_FALSE(refused);
  ASSERT_EQ(refused.error().code, ErrorCode::E213);
  const std::string hint = captured_in(refused.error().helps.back(), "--batch ([0-9]+)");
  ASSERT_NE(hint, "") << render(refused.error());
  model->step.batch = std::stoll(hint);
  const auto followed = compiled(model, schedule);
  EXPECT_TRUE(followed) << render(followed.error());
}

TEST(TriedHints, ABatchThatDivides) {
  // split alone would accept 9, and the replicas refuse it
  expect_batch_that_divides("mesh(dp=4)\nsplit(batch, parts=3, as=mb)\nplace({}, mesh={})\nreplicate({}, along=dp)\n",
                            8);
  expect_batch_that_divides(
      "mesh(pp=2, dp=3)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\n"
      "replicate({}, along=dp)\nuse 1f1b(stages=stage, microbatches=mb)\n",
      8);
  expect_batch_that_divides(
      "devices(5)\nsplit(batch, parts=2, as=mb)\nplace({layer=0..1}, devices=[0..1])\n"
      "place({layer=2..3}, devices=[2..4])\nreplicate({layer=0..1}, devices=[0..1])\n"
      "replicate({layer=2..3}, devices=[2..4])\n",
      4);
}

TEST(TriedHints, NoBatchWhereSomethingElseIsWrong) {
  const auto model = four_layers();
  const auto refused =
      compiled(model, "mesh(dp=4)\nsplit(batch, parts=3, as=mb)\nplace({}, mesh={})\nuse zb-v(stages=stage)\n");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::E213);
  EXPECT_THAT(refused.error().helps, Each(testing::Not(HasSubstr("--batch"))));
}

constexpr std::string_view in_two_stages =
    "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\nuse gpipe(stages=stage, "
    "microbatches=mb)\n";

CompileOptions with_memory(int64_t bytes) {
  CompileOptions options;
  options.cluster.kinds[0].memory = bytes;
  return options;
}
int64_t peak_of(const Plan& plan) {
  int64_t out = 0;
  for (const PlanTemplate& t : plan.templates) out = std::max(out, memory_peak(plan, t).total);
  return out;
}

/// Every change that is named fits, with the peak that is said.
TEST(TriedHints, AChangeThatFits) {
  const std::string schedule(in_two_stages);
  const auto model = four_layers();
  const auto refused = compiled(model, schedule, with_memory(6900));
  ASSERT_FALSE(refused);
  ASSERT_EQ(refused.error().code, ErrorCode::E405);
  ASSERT_FALSE(refused.error().helps.empty());
  for (const std::string& help : refused.error().helps) {
    SCOPED_TRACE(help);
    std::string changed = schedule;
    if (help.starts_with("recompute({layer=*})")) changed.insert(changed.find("use"), "recompute({layer=*})\n");
    if (const std::string parts = captured_in(help, "^parts=([0-9]+)"); !parts.empty())
      changed.replace(changed.find("parts=4"), 7, "parts=" + parts);
    if (const std::string timeline = captured_in(help, "^use ([^ ]+)"); !timeline.empty())
      changed.replace(changed.find("gpipe"), 5, timeline);
    ASSERT_NE(changed, schedule);
    const auto followed = compiled(model, changed, with_memory(6900));
    ASSERT_TRUE(followed) << render(followed.error());
    EXPECT_THAT(help, HasSubstr("makes it fit: " + human_bytes(peak_of(followed->plan)) + " at the peak"));
  }
}

TEST(TriedHints, NoChangeWhereNoneFits) {
  const auto refused = compiled(four_layers(), std::string(in_two_stages), with_memory(10));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::E405);
  EXPECT_THAT(refused.error().helps, IsEmpty());
}

/// A plan that was compiled without limits: so commands show it before they refuse it.
TEST(TriedHints, OfAPlanThatIsThere) {
  const Schedule schedule = *parse_schedule(make_source("schedule", std::string(in_two_stages)));
  const auto made = compile(four_layers(), schedule);
  ASSERT_TRUE(made);
  EXPECT_TRUE(check_capacity_with_hints(*made, schedule, {}));
  const auto refused = check_capacity_with_hints(*made, schedule, with_memory(6900));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().helps,
            compiled(four_layers(), std::string(in_two_stages), with_memory(6900)).error().helps);
}

}  // namespace
}  // namespace piper
