// Measured costs: read, printed, read again; mistakes with their place.
#include "cost/cost_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace piper {
namespace {

using ::testing::HasSubstr;

std::string table_refusal(const std::string& text) {
  auto table = parse_cost_table(make_source("costs", text));
  return table ? "accepted" : render(table.error());
}

TEST(CostTable, ReadsBackEqual) {
  std::mt19937_64 random(1);
  CostTable table;
  for (int i = 0; i < 1000; ++i) {
    CostTable::Key key{"layer." + std::to_string(i % 100), all_passes[random() % all_passes.size()],
                       1 + static_cast<int64_t>(random() % 1000)};
    if (i % 7 == 0) key = {"an odd name " + std::to_string(i), std::nullopt, 0};
    table.seconds[key] = std::ldexp(static_cast<double>(random() % 1'000'000), -static_cast<int>(random() % 60));
  }
  table.seconds[{"tiny", Pass::F, 1}] = std::numeric_limits<double>::denorm_min();
  auto again = parse_cost_table(make_source("costs", print(table)));
  ASSERT_TRUE(again) << render(again.error());
  EXPECT_EQ(*again, table);
}

TEST(CostTable, FindsWhatItHas) {
  auto table = parse_cost_table(make_source("costs", R"(piper costs 1
# chunk pass samples seconds
layer.0 F 4 1.5e-3
layer.0 BW 4 0
bucket0.w update 0 2
)"));
  ASSERT_TRUE(table) << render(table.error());
  EXPECT_EQ(find(*table, "layer.0", Pass::F, 4), 1.5e-3);
  EXPECT_EQ(find(*table, "layer.0", Pass::R, 4), 1.5e-3);  // recomputation is forward again
  EXPECT_EQ(find(*table, "layer.0", Pass::BW, 4), 0);
  EXPECT_EQ(find(*table, "bucket0.w", std::nullopt, 0), 2);
  EXPECT_EQ(find(*table, "layer.0", Pass::F, 5), std::nullopt);
  EXPECT_EQ(find(*table, "layer.1", Pass::F, 4), std::nullopt);
}

TEST(CostTable, MistakesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "piper costs 1"},
      {"layer.0 F 4 1\n", "costs:1:1: error[E101]"},
      {"piper costs 2\n", "version 2"},
      {"piper costs 1\nlayer.0 F 4 nan\n", "costs:2:13: error[E102]: \"nan\" is not a time"},
      {"piper costs 1\nlayer.0 F 4 inf\n", "is not a time"},
      {"piper costs 1\nlayer.0 F 4 -1\n", "\"-1\" is not a time"},
      {"piper costs 1\nlayer.0 F 4 1 2\n", "\"1 2\" is not a time"},
      {"piper costs 1\nlayer.0 F 4\n", "expected seconds"},
      {"piper costs 1\nlayer.0 G 4 1\n", "no pass is called \"G\""},
      {"piper costs 1\nlayer.0 F 0 1\n", "at least 1 sample"},
      {"piper costs 1\nbucket0 update 4 1\n", "an update has 0 samples"},
      {"piper costs 1\nlayer.0 F 4 1\nlayer.0 F 4 2\n", "costs:3:1: error[E104]"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(table_refusal(text), HasSubstr(message)) << text;
}

}  // namespace
}  // namespace piper
