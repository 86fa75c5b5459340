// Records of a run that failed: written, read, put together.
#include "trace/flight_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace/chrome.h"

namespace piper {
namespace {

using testing::HasSubstr;

FlightEvent event(int device, int64_t step, int op, double started, double ended) {
  FlightEvent out;
  out.device = device;
  out.step = step;
  out.op = op;
  out.stream = op % 2 == 0 ? "compute" : "p2p";
  out.kind = op % 2 == 0 ? "run" : "recv";
  out.name = "layer.\"0\" F mb=1";
  out.pass = "F";
  out.slice = 1;
  out.place = "s.piper:3";
  out.directive = "place({}, along=pp)";
  out.started = started;
  out.ended = ended;
  return out;
}

/// Two processes of three: rank 1 is gone.
std::vector<FlightFile> two_of_three() {
  FlightFile zero{0, "a", "m", "00ff", "nothing has come from a process", 100.5, 0, {}};
  zero.events = {event(0, 6, 0, 100, 100.1), event(0, 6, 1, 100.1, 100.25), event(0, 7, 0, 100.25, 100.5)};
  zero.events.back().in_progress = true;
  FlightFile two{2, "b", "m", "00ff", "another process ended the job", 101, 0.002, {}};
  two.events = {event(4, 6, 0, 100, 100.125), event(5, 6, 0, 99.5, 100)};
  return {zero, two};
}

Result<FlightFile> parsed(const std::string& text) {
  return parse_flight_file(make_source("f", text));
}

TEST(FlightFile, RoundTrip) {
  for (const FlightFile& file : two_of_three()) {
    auto read = parsed(print(file));
    ASSERT_TRUE(read) << render(read.error());
    EXPECT_EQ(*read, file);
  }
}

TEST(FlightFile, OneTimeline) {
  auto trace = as_trace(two_of_three());
  ASSERT_TRUE(trace) << render(trace.error());
  EXPECT_EQ(trace->lanes, (std::vector<std::vector<int>>{{0}, {4}, {5}}));
  EXPECT_EQ(trace->steps.size(), 2u);
  EXPECT_EQ(trace->events[2].name, "layer.\"0\" F mb=1 (in progress)");
  EXPECT_DOUBLE_EQ(trace->events[0].start, 0.5);
  EXPECT_DOUBLE_EQ(trace->events[4].start, 0);
  EXPECT_EQ(trace->events[2].step, 1);
  auto again = parse_chrome(make_source("t", print_chrome(*trace)));
  ASSERT_TRUE(again) << render(again.error());
  EXPECT_EQ(*again, *trace);
}

TEST(FlightFile, Text) {
  const std::string text = describe(two_of_three(), 2);
  EXPECT_THAT(text, HasSubstr("rank 0 on a: nothing has come from a process\n  device 0\n"));
  EXPECT_THAT(text, HasSubstr("-0.900 s  step 6 op 1 recv layer.\"0\" F mb=1 on p2p (s.piper:3): 150.000 ms\n"));
  EXPECT_THAT(text, HasSubstr("-0.750 s  step 7 op 0 run layer.\"0\" F mb=1 on compute (s.piper:3): in progress\n"));
  EXPECT_THAT(text,
              ::testing::Not(HasSubstr("-1.000 s  step 6 op 0 run layer.\"0\" F mb=1 on compute (s.piper:3): 100")));
  EXPECT_THAT(text, HasSubstr("clocks are known to 2.000 ms"));
}

TEST(FlightFile, WhatIsRefused) {
  const std::string good = print(two_of_three()[0]);
  const auto code = [](const std::string& text) {
    auto read = parsed(text);
    return read ? std::string("none") : std::string(name(read.error().code));
  };
  EXPECT_EQ(code(""), "E501");
  EXPECT_EQ(code("{}"), "E501");
  EXPECT_EQ(code("[1]"), "E501");
  EXPECT_EQ(code("what"), "E106");
  EXPECT_EQ(code(good + "{\"device\":"), "E106");
  EXPECT_EQ(code(good + "{\"device\":0}"), "E503");
  EXPECT_EQ(code(good + "7"), "E503");
  std::string other = good;
  other.replace(other.find("\"version\":1"), 11, "\"version\":2");
  EXPECT_EQ(code(other), "E502");
  std::vector<FlightFile> mixed = two_of_three();
  mixed[1].plan = "1234";
  EXPECT_THAT(as_trace(mixed).error().message, HasSubstr("different jobs"));
  EXPECT_THAT(as_trace({mixed[0], mixed[0]}).error().message, HasSubstr("device 0 is in two records"));
}

}  // namespace
}  // namespace piper
