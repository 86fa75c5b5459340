// The equality matrix: every legal way to train computes what one device computes that runs all slices in turn.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "plan/plan.h"
#include "train_loop/covering.h"
#include "train_loop/legs.h"

namespace piper {
namespace {

/// Inside a region that is divided among devices temporaries are planned as on one device: a known gap, and the only
/// place where less may be used than was planned.
bool planned_too_large(const Plan& plan) {
  return std::any_of(plan.works.begin(), plan.works.end(),
                     [](const PlanWork& work) { return work.shards[ShardKind::Expert].valid(); });
}

void expect_memory_as_planned(const Trained& run, const Plan& plan, Issue issue) {
  for (size_t d = 0; d < run.peak_bytes.size(); ++d) {
    EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << "device " << d;
    if (issue == Issue::Serial && !planned_too_large(plan)) {
      EXPECT_EQ(run.peak_bytes[d], run.serial_bytes[d]) << "device " << d;
    }
  }
}

void expect_equal(const Combination& c, const Leg& leg) {
  const Subject subject{c.kind, c.layers(), leg.dtype, leg.optimizer};
  const CapturedModel& model = captured(subject, {subject_batch / c.slices()});
  Result<Compiled> compiled = compile_for(model, c.schedule());
  ASSERT_TRUE(compiled) << render(compiled.error());
  TrainSettings settings = usual_settings(subject);
  settings.job.run.issue = leg.issue;
  const auto plan = std::make_shared<const Plan>(compiled->plan);
  const Trained run = train(model_of(subject), model, plan, settings);
  const Trained& expected = reference(subject, c.slices());
  EXPECT_THAT(complaints(run, expected, leg.dtype == DType::Float64 ? 1e-12 : 1e-5), testing::IsEmpty());
  for (const auto& [name, ordered] : run.ordered) EXPECT_TRUE(ordered || !c.must_be_ordered()) << name;
  EXPECT_EQ(run.devices, c.grid.devices());
  expect_memory_as_planned(run, *plan, leg.issue);
}

void expect_refused(const Combination& c, const Exclusion& why) {
  if (!why.refused) return;
  const CapturedModel& model = captured({c.kind, c.layers()}, {subject_batch / c.slices()});
  Result<Compiled> compiled = compile_for(model, c.schedule());
  ASSERT_FALSE(compiled) << why.reason;
  EXPECT_EQ(name(compiled.error().code), name(*why.refused)) << why.reason << "\n" << render(compiled.error());
}

class Matrix : public testing::TestWithParam<size_t> {};

TEST_P(Matrix, EqualsOneDevice) {
  const Combination& c = pairwise_covering().trained[GetParam()];
  SCOPED_TRACE(c.describe() + "\n" + c.schedule());
  for (const Leg& leg : legs_of(c)) expect_equal(c, leg);
}
INSTANTIATE_TEST_SUITE_P(Pairwise, Matrix, testing::Range(size_t{0}, pairwise_covering().trained.size()),
                         [](const auto& info) { return fmt::format("{:03}", info.param); });

TEST(Excluded, ForTheReasonThatIsGiven) {
  for (const Combination& c : pairwise_covering().excluded) {
    SCOPED_TRACE(c.describe() + "\n" + c.schedule());
    const auto why = exclusion(c);
    ASSERT_TRUE(why);
    expect_refused(c, *why);
  }
  for (const Combination& c : pairwise_covering().too_long)
    EXPECT_TRUE(is_too_long(c) && !exclusion(c)) << c.describe();
}

/// Equal whatever lines of the schedule are behind it.
uint64_t hash_without_origins(Plan plan) {
  plan.origins.clear();
  for (PlanTemplate& t : plan.templates)
    for (PlannedOp& op : t.ops) op.origin = {};
  return hash(plan);
}

/// All of them, model by model and timeline by timeline, or with PIPER_LONG=n every n-th. Combinations with equal plans
/// are trained once.
class Product : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Product, EqualsOneDevice) {
  const char* every = std::getenv("PIPER_LONG");
  if (!every) GTEST_SKIP() << "takes long: PIPER_LONG=1";
  const int stride = std::max(1, std::atoi(every));
  std::set<std::pair<DeviceGrid, uint64_t>> trained;
  const auto [kind, timeline] = GetParam();
  int all = 0, refused = 0, meaningless = 0, legal = 0;
  for (const Combination& c : full_product(kind, timeline)) {
    SCOPED_TRACE(c.describe() + "\n" + c.schedule());
    if (all++ % stride != 0) continue;
    if (const auto why = exclusion(c)) {
      ++(why->refused ? refused : meaningless);
      expect_refused(c, *why);
      continue;
    }
    ++legal;
    auto compiled = compile_for(captured({kind, c.layers()}, {subject_batch / c.slices()}), c.schedule());
    ASSERT_TRUE(compiled) << render(compiled.error());
    if (!trained.insert({c.grid, hash_without_origins(compiled->plan)}).second) continue;
    for (const Leg& leg : legs_of(c)) expect_equal(c, leg);
  }
  fmt::print("{} combinations, of which here: {} refused, {} the same as others by definition, {} legal, {} plans\n",
             all, refused, meaningless, legal, trained.size());
}
INSTANTIATE_TEST_SUITE_P(Full, Product,
                         testing::Combine(testing::ValuesIn(subject_kinds()), testing::ValuesIn(timeline_names())),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace piper
