#include "checkpoint/run_state.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>

#include "checkpoint/sample_folder.h"
#include "must.h"

namespace piper::checkpoint_tests {
namespace {

PiperJson sample() {
  PiperJson json{state_at(1000), {{"a.safetensors", 5'000'000, {0x01234567, 0x89abcdef}}, {"b", 0, {}}}};
  json.state.program = "1.2.3";
  json.state.extra = {{"epoch", "3"}, {"note", "a \"b\"\n\u00e9"}};
  return json;
}

/// The same bits; of what is not a number the fact is enough.
bool same_double(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

TEST(RunState, AsText) {
  EXPECT_EQ(print(sample()), R"({
  "format": "piper-checkpoint",
  "version": 1,
  "program": "1.2.3",
  "step": 1000,
  "samples": 32000,
  "updates": 1000,
  "seed": 17,
  "learning_rate": 0.0003,
  "loss": 0.3333333333333333,
  "plan": "36e103b48ffcbb93",
  "configuration": "[model]\u000ahidden = 8\u000a",
  "extra": {
    "epoch": "3",
    "note": "a \"b\"\u000a)"
                             "\u00e9"
                             R"("
  },
  "block_bytes": 4194304,
  "files": [
    {"name": "a.safetensors", "bytes": 5000000, "crc32": "0123456789abcdef"},
    {"name": "b", "bytes": 0, "crc32": ""}
  ],
  "crc32": "f36ec148"
}
)");
  EXPECT_EQ(must(parse_piper_json("f", print(sample()))), sample());
}

RC_GTEST_PROP(RunState, DoublesAndSeedsComeBackBitEqual, (uint64_t loss, uint64_t rate, uint64_t seed)) {
  PiperJson json = sample();
  json.state.loss = std::bit_cast<double>(loss);
  json.state.learning_rate = std::bit_cast<double>(rate);
  json.state.seed = seed;
  const RunState again = must(parse_piper_json("f", print(json))).state;
  RC_ASSERT(again.seed == seed);
  RC_ASSERT(same_double(json.state.loss, again.loss));
  RC_ASSERT(same_double(json.state.learning_rate, again.learning_rate));
}

TEST(RunState, StrangeDoublesComeBack) {
  PiperJson json = sample();
  for (const double value :
       {0.0, -0.0, 1.0, 123456789012345680.0, 1e300, -5e-324, double(INFINITY), double(-INFINITY), double(NAN), 0.1}) {
    json.state.loss = value;
    EXPECT_TRUE(same_double(must(parse_piper_json("f", print(json))).state.loss, value)) << value;
  }
}

TEST(RunState, EveryChangedByteIsFound) {
  const std::string text = print(sample());
  for (size_t at = 0; at < text.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      EXPECT_FALSE(parse_piper_json("f", changed)) << at << " " << bit;
    }
  for (size_t size = 0; size < text.size(); ++size) EXPECT_FALSE(parse_piper_json("f", text.substr(0, size)));
  EXPECT_FALSE(parse_piper_json("f", text + " "));
}

TEST(RunState, OtherFormatsAndVersionsAreRefused) {
  const auto message = [](const std::string& text) { return parse_piper_json("f", text).error().message; };
  EXPECT_EQ(message("{}"), "f is not a checkpoint: its format is another");
  EXPECT_EQ(message(R"({"format": "piper-checkpoint", "version": 2})"),
            "f is not a checkpoint: its version is 2; this program reads version 1");
  EXPECT_EQ(message("no"), "f: it is not JSON");
}

}  // namespace
}  // namespace piper::checkpoint_tests
