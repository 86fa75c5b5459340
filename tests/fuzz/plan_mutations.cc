// Damaged plans: parsed, verified, printed and read again.
#include <gtest/gtest.h>

#include "fuzz/trial.h"
#include "plan/memory_report.h"
#include "plan/plan_text.h"
#include "plan/verify_plan.h"

namespace piper::fuzz {
namespace {

TEST(Mutations, OfPlans) {
  int sound = 0;
  const auto run = [&](const Seed& seed, const std::string& text) {
    const auto plan = parse_plan(make_source(seed.name, text));
    if (!plan) return Outcome::Refused;
    const auto again = parse_plan(make_source("printed", print(*plan)));
    EXPECT_TRUE(again && *again == *plan) << text;
    if (!verify(*plan)) return Outcome::Parsed;
    ++sound;
    EXPECT_FALSE(memory_table(*plan).empty());
    return Outcome::Parsed;
  };
  try_mutations("plan", scaled(20'000), run);
  EXPECT_GT(sound, 0);
}

}  // namespace
}  // namespace piper::fuzz
