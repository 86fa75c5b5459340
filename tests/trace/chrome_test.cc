// Traces as files: what is written reads back equal, other tools can read it, and what cannot be read says why.
#include "trace/chrome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

#include "random_trace.h"

namespace piper::testing {
namespace {

using ::testing::HasSubstr;

Trace small_trace() {
  Trace trace;
  trace.source = "simulated";
  trace.model = "tiny";
  trace.plan = "00000000000000aa";
  trace.seconds = 0.5;
  trace.lanes = {{0}, {1, 2}};
  trace.streams = {"compute", "dp"};
  trace.categories = {"weights", "activations"};
  trace.origins = {{"s.piper:3", "place({}, devices=[0])"}};
  trace.events = {{0, 0, 0, "a F", "run", "F", 0, 0, 0.1, 0, 0, {}, {}, 0},
                  {1, 1, 4, "g", "all_reduce", "", -1, 0.1, 0.3, 64, -1, {}, {0, 0}, 0},
                  {1, 0, 5, "a B", "run", "B", 0, 0.3, 0.5, 0, 0, {4}, {1, 4}, 0}};
  trace.memory = {{0, 0, {10, 0}}, {0, 0.1, {10, 5}, 0}};
  trace.buffers = {{0, "a", 0, 10}, {0, "a.out F mb=0", 1, 5, 0, 0}, {1, "a.out B mb=0", 1, 7, 4, 5}};
  return trace;
}

std::string problem_of(const std::string& text) {
  auto trace = parse_chrome(make_source("t.json", text));
  return trace ? "" : render(trace.error());
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

RC_GTEST_PROP(Chrome, ReadsBackWhatItWrites, ()) {
  const Trace trace = random_trace();
  const std::string text = print_chrome(trace);
  auto again = parse_chrome(make_source("printed", text));
  if (!again) RC_FAIL(render(again.error()) + text);
  RC_ASSERT(*again == trace);
}

RC_GTEST_PROP(Chrome, ReadsBackWhatAnotherToolWrote, ()) {
  const Trace trace = random_trace();
  const auto json = nlohmann::json::parse(print_chrome(trace));  // sorts the members
  auto again =
      parse_chrome(make_source("dumped", json.dump(*rc::gen::inRange(-1, 3), ' ', *rc::gen::arbitrary<bool>())));
  if (!again) RC_FAIL(render(again.error()));
  RC_ASSERT(again->events.size() == trace.events.size());
  for (size_t i = 0; i < trace.events.size(); ++i) {
    RC_ASSERT(again->events[i].name == trace.events[i].name);
    RC_ASSERT(again->events[i].end == trace.events[i].end);
    RC_ASSERT(again->events[i].waits == trace.events[i].waits);
  }
}

TEST(Chrome, CutOffAnywhereIsRefused) {
  const std::string text = print_chrome(small_trace());
  for (size_t length = 0; length + 2 < text.size(); ++length)
    EXPECT_THAT(problem_of(text.substr(0, length)), HasSubstr("help: ")) << length;
}

TEST(Chrome, EventsMayStandBeforeTheHeader) {
  const auto json = nlohmann::json::parse(print_chrome(small_trace()));
  const std::string text =
      R"({"traceEvents": )" + json["traceEvents"].dump() + R"(, "otherData": )" + json["otherData"].dump() + "}";
  const auto again = parse_chrome(make_source("t", text));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, small_trace());
}

TEST(Chrome, TextThatIsNoUtf8IsMended) {
  Trace trace = small_trace();
  trace.events[0].name =
      "a\xff"
      "b";
  const auto again = parse_chrome(make_source("t", print_chrome(trace)));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->events[0].name,
            "a\xEF\xBF\xBD"
            "b");
}

struct Damage {
  std::string what, by, code, message;
};

TEST(Chrome, SaysWhatIsWrong) {
  const std::string text = print_chrome(small_trace());
  const std::vector<Damage> cases = {
      {"\"pid\": 2, \"tid\": 2, \"name\": \"g\"", "\"pid\": 3, \"tid\": 2, \"name\": \"g\"", "E503",
       "pid (the lane) is 3"},
      {"\"tid\": 2, \"name\": \"g\"", "\"tid\": 0, \"name\": \"g\"", "E503", "tid (the stream) is 0"},
      {"\"origin\": 0", "\"origin\": 1", "E503", "origin is 1"},
      {"\"waits\": [4]", "\"waits\": [6]", "E503", "waits for operation 6 of lane 1"},
      {"\"cause\": [1, 4]", "\"cause\": [1]", "E503", "cause must have 2 parts"},
      {"\"cause\": [1, 4]", "\"cause\": [1, 4, 5]", "E503", "cause must have 2 parts"},
      {"\"cause\": [1, 4]", "\"cause\": [2, 4]", "E503", "lane of the cause is 2"},
      {"\"cause\": [1, 4]", "\"cause\": [1, 99]", "E503", "operation 99 of lane 1"},
      {"\"op\": 5", "\"op\": 4", "E503", "stands twice"},
      {"\"op\": 5", "\"op\": -5", "E503", "op is -5"},
      {"\"op\": 5", "\"op\": 5.5", "E503", "op is 5.5"},
      {"\"op\": 5", "\"op\": \"5\"", "E503", "op must be a number"},
      {"\"op\": 5", "\"op\": 99999999999999999999", "E503", "op is 99999999999999999999"},
      {"\"end\": 0.5", "\"end\": 1e999", "E503", "end is not a finite number"},
      {"\"end\": 0.5", "\"end\": NaN", "E503", "end must be a number"},
      {"\"end\": 0.5", "\"end\": 0.2", "E503", "ends before that"},
      {"\"end\": 0.5", "\"end\": 1e300", "E503", "more than"},
      {"\"ts\": 100000", "\"ts\": -1", "E503", "ts is negative"},
      {"\"end\": 0.5", "\"end\": 0.5, \"end\": 0.6", "E503", "\"end\" stands twice"},
      {"\"seconds\": 0.5", "\"seconds\": -0.5", "E503", "seconds is negative"},
      {"\"seconds\": 0.5,", "", "E503", "has no \"seconds\""},
      {"[[0], [1, 2]]", "[[0], []]", "E503", "a lane has no devices"},
      {"[[0], [1, 2]]", "[[0], [0, 2]]", "E503", "device 0 stands in two lanes"},
      {"[[0], [1, 2]]", "7", "E503", "lanes must be a list"},
      {"\"capacity\": []", "\"capacity\": [1]", "E503", "1 numbers for 2 lanes"},
      {"\"steps\": []", "\"steps\": [[0, 2, 1]]", "E503", "a step ends before it starts"},
      {"\"weights\", \"activations\"", "\"weights\", \"weights\"", "E503", "a category stands twice"},
      {"\"op\": 0, \"args\": {\"weights\"", "\"op\": 3, \"args\": {\"weights\"", "E503",
       "operation 3 of lane 0 takes memory but has no event"},
      {"[0, 10, \"a\"]", "[2, 10, \"a\"]", "E503", "category of a buffer is 2"},
      {"[0, 10, \"a\"]", "[0, -1, \"a\"]", "E503", "bytes of a buffer is -1"},
      {"[0, 10, \"a\"]", "[0, 10, 5]", "E503", "name of a buffer must be a text"},
      {"[0, 10, \"a\"]", "[0, 10]", "E503", "a buffer has 3 or 5 parts, not 2"},
      {"[0, 10, \"a\"]", "[0, 10, \"a\", 0]", "E503", "a buffer has 3 or 5 parts, not 4"},
      {"[0, 10, \"a\"]", "[0, 10, \"a\", 0, 0, []]", "E503", "a buffer has 3 or 5 parts, not 6"},
      {"[0, 10, \"a\"]", "{}", "E503", "a buffer must be a list"},
      {"\"pid\": 1, \"name\": \"piper_buffers\"", "\"pid\": 3, \"name\": \"piper_buffers\"", "E503",
       "pid (the lane) is 3"},
      {"\"pid\": 1, \"name\": \"piper_buffers\"", "\"name\": \"piper_buffers\"", "E503", "the buffers have no \"pid\""},
      {"7, \"a.out B mb=0\", 4, 5]", "7, \"a.out B mb=0\", 4, 6]", "E503", "operation 6 of lane 1, which has no event"},
      {"7, \"a.out B mb=0\", 4, 5]", "7, \"a.out B mb=0\", 5, 4]", "E503", "taken by operation 5 and returned before"},
      {"{\"weights\": 10,", "{", "E503", "has no \"weights\""},
      {"{\"weights\": 10,", "{\"weight\": 10,", "E503", "did you mean \"weights\""},
      {"\"version\": 1", "\"version\": 12", "E502", "version of the trace is 12"},
      {"piper-trace", "other", "E501", "not a trace of Piper"},
      {"\"otherData\"", "\"metadata\"", "E501", "no \"otherData\""},
      {"\"traceEvents\"", "\"events\"", "E503", "no \"traceEvents\""},
      {"\"ph\": \"M\"", "\"pg\": \"M\"", "E503", "no \"ph\""},
      {"\"name\": \"g\"", "\"name\": \"\\ud800\"", "E106", "escape"},
      {"\"name\": \"g\"", "\"name\": \"\xff\"", "E106", "byte 0xff"},
      {"\"name\": \"g\"", "\"name\": 01", "E503", "name must be a text"},
      {"\"displayTimeUnit\": \"ms\"", "\"x\": 01", "E106", "expected a value"},
      {"\"displayTimeUnit\": \"ms\"", "\"x\": [1,]", "E106", "expected a value, found ']'"},
  };
  for (const Damage& damage : cases) {
    const std::string problem = problem_of(replaced(text, damage.what, damage.by));
    EXPECT_THAT(problem, HasSubstr("error[" + damage.code + "]")) << damage.by;
    EXPECT_THAT(problem, HasSubstr(damage.message)) << damage.by;
    EXPECT_THAT(problem, HasSubstr("t.json:")) << damage.by;
  }
}

TEST(Chrome, DeepNestingIsRefused) {
  const std::string deep = replaced(print_chrome(small_trace()), "\"ms\"", std::string(1'000'000, '['));
  EXPECT_THAT(problem_of(deep), HasSubstr("nested more than 32 deep"));
}

TEST(Chrome, MembersOfOthersAreSkipped) {
  const std::string text =
      replaced(print_chrome(small_trace()), "\"ms\"", R"({"a": [1, {"b": null}, "x\"y"], "c": -1e-3})");
  EXPECT_EQ(problem_of(text), "");
}

}  // namespace
}  // namespace piper::testing
