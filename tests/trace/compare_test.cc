// Prediction and run: the numbers of the comparison are those of the traces.
#include "trace/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace piper::testing {
namespace {

using ::testing::HasSubstr;

/// Two devices, three operations each.
Trace trace_of(std::vector<std::vector<int>> lanes, double slow) {
  Trace trace;
  trace.model = "tiny";
  trace.plan = "aa";
  trace.lanes = std::move(lanes);
  trace.streams = {"compute", "dp"};
  for (int lane = 0; lane < static_cast<int>(trace.lanes.size()); ++lane) {
    trace.events.push_back({lane, 0, 0, "a F mb=0", "run", "F", 0, 0, 1, 0, -1, {}, {}, 0});
    trace.events.push_back({lane, 0, 1, "a B mb=0", "run", "B", 0, 1, 3 * slow, 0, -1, {}, {}, 0});
    trace.events.push_back({lane, 1, 2, "a", "all_reduce", "", -1, 3 * slow, 3 * slow + 1, 8, -1, {1}, {}, 0});
  }
  trace.seconds = 3 * slow + 1;
  return trace;
}

TEST(Compare, EqualTracesDoNotDiffer) {
  const Trace trace = trace_of({{0}, {1}}, 1);
  const auto result = compare(trace, trace);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->step.difference(), 0);
  EXPECT_EQ(result->matched, 6);
  EXPECT_TRUE(result->absolute.empty());
  EXPECT_FALSE(result->divergence);
}

/// The simulator joins devices that do the same; the runtime has a lane for each.
TEST(Compare, LanesAreMatchedByDevice) {
  const auto result = compare(trace_of({{0, 1}}, 1), trace_of({{0}, {1}}, 1.5));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->devices, 2);
  EXPECT_EQ(result->matched, 6);
  EXPECT_DOUBLE_EQ(result->step.difference(), 1.5);
  ASSERT_EQ(result->kinds.size(), 2u);
  EXPECT_EQ(result->kinds[1].name, "run");
  EXPECT_DOUBLE_EQ(result->kinds[1].predicted, 3);
  EXPECT_DOUBLE_EQ(result->kinds[1].measured, 4.5);
  EXPECT_DOUBLE_EQ(*result->passes[0].relative(), 0.75);
  EXPECT_DOUBLE_EQ(result->streams[1].measured, 1);
  ASSERT_EQ(result->absolute.size(), 2u);
  EXPECT_EQ(result->absolute[0].op, 1);
  ASSERT_TRUE(result->divergence);
  EXPECT_EQ(result->divergence->op, 1) << "the all-reduce is late only because of the backward";
}

TEST(Compare, SeveralStepsAreAveraged) {
  Trace measured = trace_of({{0}}, 1);
  const size_t count = measured.events.size();
  for (size_t i = 0; i < count; ++i) {
    TraceEvent later = measured.events[i];
    later.step = 1;
    later.start += 10;
    later.end += 10 + (later.op == 2 ? 0.5 : 0);
    measured.events.push_back(later);
  }
  measured.steps = {{5, 0, 4}, {6, 10, 14.5}};
  measured.seconds = 14.5;
  const auto result = compare(trace_of({{0}}, 1), measured);
  ASSERT_TRUE(result);
  EXPECT_DOUBLE_EQ(result->step.measured, 4.25);
  ASSERT_EQ(result->absolute.size(), 1u);
  EXPECT_DOUBLE_EQ(result->absolute[0].duration.measured, 1.25);
  EXPECT_DOUBLE_EQ(result->absolute[0].start.measured, 3);
}

TEST(Compare, CountsWhatOnlyOneHas) {
  Trace measured = trace_of({{0}}, 1);
  measured.events.pop_back();
  const auto result = compare(trace_of({{0}}, 1), measured);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->only_predicted, 1);
  EXPECT_THAT(print(*result), HasSubstr("2 operations in both, 1 only predicted"));
}

TEST(Compare, RefusesOtherModels) {
  Trace other = trace_of({{0}}, 1);
  other.model = "large";
  auto result = compare(trace_of({{0}}, 1), other);
  ASSERT_FALSE(result);
  EXPECT_THAT(render(result.error()),
              HasSubstr("error[E504]: the traces are of different models: \"tiny\" and \"large\""));
}

TEST(Compare, JsonHasTheSameNumbers) {
  const auto result = compare(trace_of({{0}}, 1), trace_of({{0}}, 2));
  const auto json = nlohmann::json::parse(print_json(*result));
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["step"]["difference"], 3.0);
  EXPECT_EQ(json["largest_absolute"][0]["duration"]["measured"], 5.0);
  EXPECT_EQ(json["first_divergence"]["op"], 1);
}

}  // namespace
}  // namespace piper::testing
