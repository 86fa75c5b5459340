// What Perfetto and chrome://tracing rely on when they read the file, beyond its being JSON. Their importers look for
// `ts` and `dur` in the text of an event before they parse it, cut times to nanoseconds, and drop events that overlap.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "random_trace.h"
#include "trace/chrome.h"

namespace piper::testing {
namespace {

using nlohmann::json;

/// The text of a number that is a member of an event.
std::string text_of(const std::string& line, const std::string& key) {
  const size_t at = line.find("\"" + key + "\": ") + key.size() + 4;
  return line.substr(at, line.find_first_of(",}", at) - at);
}

/// Nanoseconds of a text in microseconds, in the ways of different viewers and versions of them.
std::vector<int64_t> nanoseconds(const std::string& text) {
  const double whole = std::stod(text.substr(0, text.find('.')));
  const double fraction = text.find('.') == std::string::npos ? 0 : std::stod("0" + text.substr(text.find('.')));
  return {static_cast<int64_t>(std::stod(text) * 1000), std::llround(std::stod(text) * 1000),
          static_cast<int64_t>(whole) * 1000 + static_cast<int64_t>(fraction * 1000)};
}

/// Fails on what an importer refuses, drops or puts on the wrong track; returns the events.
std::vector<json> must_import(const std::string& file) {
  for (const char c : file) EXPECT_TRUE(c == '\n' || !std::iscntrl(static_cast<unsigned char>(c)));
  EXPECT_TRUE(file.starts_with("{\n\"displayTimeUnit\": \"ms\",\n\"otherData\": {")) << "events come last";
  std::vector<json> events;
  std::set<std::pair<int, int>> threads;
  std::set<int> processes;
  std::istringstream lines(file.substr(file.find("\"traceEvents\": [") + 16));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("{")) continue;
    const json event = json::parse(line.ends_with(",") ? line.substr(0, line.size() - 1) : line);
    for (const auto& member : event) EXPECT_FALSE(member.is_array()) << "only args may hold lists: " << line;
    const std::string phase = event.at("ph"), name = event.at("name");
    const int pid = event.at("pid");
    EXPECT_GT(pid, 0) << "0 is the idle process";
    EXPECT_TRUE(event.at("args").is_object());
    if (phase == "M") {
      EXPECT_LT(line.size(), 1u << 20) << "a line that is cut is read again from its start";
      if (name == "process_name") processes.insert(pid);
      if (name == "thread_name") threads.emplace(pid, event.at("tid"));
      if (name.ends_with("_name")) {
        EXPECT_TRUE(event["args"].at("name").is_string());
      }
      continue;
    }
    EXPECT_TRUE(processes.contains(pid)) << "names come first";
    EXPECT_TRUE(event.at("ts").is_number());
    EXPECT_EQ(text_of(line, "ts").find_first_of("eE"), std::string::npos) << line;
    if (phase == "C") {
      for (const auto& value : event["args"]) EXPECT_TRUE(value.is_number()) << "a curve for every number";
    } else {
      EXPECT_EQ(phase, "X") << "whole events: no begin without end, no flow without a place to bind to";
      EXPECT_TRUE(threads.contains({pid, event.at("tid").get<int>()}));
      EXPECT_TRUE(event.at("cat").is_string());
      EXPECT_EQ(text_of(line, "dur").find_first_of("eE-"), std::string::npos) << line;
    }
    events.push_back(event);
    events.back()["line"] = line;
  }
  return events;
}

RC_GTEST_PROP(Viewers, ImportEveryTrace, ()) {
  const Trace trace = random_trace();
  const std::vector<json> events = must_import(print_chrome(trace));
  RC_ASSERT(!::testing::Test::HasFailure());
  RC_ASSERT(events.size() == trace.events.size() + trace.memory.size());
  for (size_t i = 0; i < trace.events.size(); ++i) {
    RC_ASSERT(events[i]["pid"] == trace.events[i].lane + 1);
    RC_ASSERT(std::fabs(events[i]["ts"].get<double>() - trace.events[i].start * 1e6) <= trace.events[i].start * 1e-6);
  }
}

/// Events that follow each other without a gap, at times that are whole nanoseconds or anything between.
RC_GTEST_PROP(Viewers, SeeNoOverlap, ()) {
  Trace trace;
  trace.lanes = {{0}};
  trace.streams = {"compute"};
  double time = 0;
  for (int op = 0; op < 50; ++op) {
    const auto length = static_cast<double>(*rc::gen::inRange<int64_t>(0, 1'000'000'000));
    TraceEvent event;
    event.op = op;
    event.start = time;
    event.end = time = *rc::gen::arbitrary<bool>() ? (std::round(time * 1e9) + length) * 1e-9 : time + length / 3e9;
    trace.events.push_back(event);
  }
  std::vector<int64_t> last(3, 0);
  for (const json& event : must_import(print_chrome(trace))) {
    const std::string line = event["line"];
    const auto begin = nanoseconds(text_of(line, "ts")), length = nanoseconds(text_of(line, "dur"));
    for (size_t way = 0; way < last.size(); ++way) {
      RC_ASSERT(begin[way] >= last[way]);
      last[way] = begin[way] + length[way];
    }
    const TraceEvent& written = trace.events[event["args"]["op"].get<size_t>()];
    RC_ASSERT(event["dur"].get<double>() * 1e3 >= (written.end - written.start) * 1e9 - 4);
  }
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(Viewers, RoundTimesStayRound) {
  Trace trace;
  trace.lanes = {{0}, {3, 4}};
  trace.streams = {"compute"};
  trace.events.resize(1);
  trace.events[0].start = 0.001;
  trace.events[0].end = 0.0035;
  const std::string file = print_chrome(trace);
  const std::vector<json> events = must_import(file);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["ts"], 1000);
  EXPECT_EQ(events[0]["dur"], 2500);
  EXPECT_NE(file.find("\"devices 3, 4\""), std::string::npos);
}

}  // namespace
}  // namespace piper::testing
