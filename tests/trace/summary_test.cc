// The numbers of a trace, computed by hand.
#include "trace/summary.h"

#include <gtest/gtest.h>

namespace piper::testing {
namespace {

/// Two devices for 10 s: computing 0-4 and 6-8; a message 3-7, so 2 s of it are exposed. A third that only computes
/// 0-5.
Trace hand_made() {
  Trace trace;
  trace.seconds = 10;
  trace.tokens = 500;
  trace.seconds_at_peak = 4;
  trace.lanes = {{0, 1}, {2}};
  trace.streams = {"compute", "dp"};
  trace.categories = {"weights", "activations"};
  const auto add = [&](int lane, int stream, const std::string& kind, double start, double end) {
    TraceEvent event;
    event.lane = lane;
    event.stream = stream;
    event.op = static_cast<int>(trace.events.size());
    event.kind = kind;
    event.start = start;
    event.end = end;
    trace.events.push_back(event);
  };
  add(0, 0, "run", 0, 4);
  add(0, 0, "update", 6, 8);
  add(0, 1, "all_reduce", 3, 7);
  add(1, 0, "run", 0, 5);
  trace.memory = {{0, 0, {10, 0}}, {0, 2, {10, 30}}, {0, 5, {10, 1}}, {1, 0, {7, 0}}};
  return trace;
}

TEST(Summary, CountsTimeOfDevices) {
  const std::vector<TraceSummary> all = summarize(hand_made());
  ASSERT_EQ(all.size(), 1u);
  const TraceSummary& summary = all[0];
  EXPECT_DOUBLE_EQ(summary.lanes[0].use.compute, 6);
  EXPECT_DOUBLE_EQ(summary.lanes[0].use.communication, 4);
  EXPECT_DOUBLE_EQ(summary.lanes[0].use.exposed, 2);
  EXPECT_DOUBLE_EQ(summary.lanes[0].use.idle, 2);
  EXPECT_DOUBLE_EQ(summary.lanes[0].use.busy[1], 4);
  EXPECT_DOUBLE_EQ(summary.bubble, 1 - (2 * 6 + 5) / 30.0);
  EXPECT_DOUBLE_EQ(summary.exposed, 4 / 30.0);
  EXPECT_DOUBLE_EQ(summary.tokens_per_second, 50);
  EXPECT_DOUBLE_EQ(summary.mfu, 0.4);
}

TEST(Summary, FindsThePeak) {
  const TraceSummary summary = summarize(hand_made())[0];
  EXPECT_EQ(summary.peak_bytes, 40);
  EXPECT_EQ(summary.lanes[0].peak_time, 2);
  EXPECT_EQ(summary.lanes[1].peak_bytes, 7);
}

/// A sample before a step is in force when it starts.
TEST(Summary, StepsAreSeparate) {
  Trace trace = hand_made();
  trace.steps = {{4, 0, 5}, {5, 5.5, 10}};
  trace.events[1].step = 1;
  trace.events[2].step = 1;
  trace.events[2].start = 6;
  const std::vector<TraceSummary> all = summarize(trace);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_DOUBLE_EQ(all[0].lanes[0].use.compute, 4);
  EXPECT_DOUBLE_EQ(all[1].seconds, 4.5);
  EXPECT_DOUBLE_EQ(all[1].lanes[0].use.compute, 2);
  EXPECT_DOUBLE_EQ(all[1].lanes[0].use.exposed, 0);
  EXPECT_EQ(all[1].lanes[0].peak_bytes, 11);
  EXPECT_EQ(all[1].lanes[0].peak_time, 5.5);
}

}  // namespace
}  // namespace piper::testing
