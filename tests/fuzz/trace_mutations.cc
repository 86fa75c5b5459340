// Damaged traces: read, written and read again, compared with themselves.
#include <gtest/gtest.h>

#include "fuzz/trial.h"
#include "trace/chrome.h"
#include "trace/compare.h"

namespace piper::fuzz {
namespace {

TEST(Mutations, OfTraces) {
  const auto run = [](const Seed& seed, const std::string& text) {
    const auto trace = parse_chrome(make_source(seed.name, text));
    if (!trace) return Outcome::Refused;
    const auto again = parse_chrome(make_source("printed", print_chrome(*trace)));
    EXPECT_TRUE(again && *again == *trace) << text;
    if (const auto comparison = compare(*trace, *trace)) {
      EXPECT_FALSE(print(*comparison).empty());
    }
    return Outcome::Parsed;
  };
  try_mutations("trace", scaled(20'000), run);
}

}  // namespace
}  // namespace piper::fuzz
