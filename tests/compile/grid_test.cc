// The picture of a timeline: every cell where its time is, no label cut or glued to the next, whatever the width.
#include "compile/grid.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "timelines/library.h"

namespace piper {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

/// Without the escapes of colours.
std::string plain(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b')
      i = text.find('m', i);
    else
      out += text[i];
  }
  return out;
}

Timeline make(const std::string& name, int ranks, int microbatches) {
  return *make_timeline(name, {.ranks = ranks, .microbatches = microbatches}, {});
}

TEST(Grid, LargeNumbersStayApart) {
  const TimedRow row{
      {0}, {{{{0, Pass::F, 99}, {}}, 0, 1}, {{{0, Pass::F, 100}, {}}, 1, 2}, {{{0, Pass::F, 101}, {}}, 2, 3}}};
  EXPECT_THAT(print_grid({row}, {.time = GridTime::Units}), HasSubstr("F99- F100 F101"));
}

TEST(Grid, FitsTheTerminalWithAndWithoutColour) {
  const std::vector<std::tuple<std::string, int, int>> sizes = {
      {"gpipe", 4, 8},      {"1f1b", 8, 32},     {"interleaved-1f1b", 4, 8}, {"zb-v", 4, 8},    {"v-min", 8, 24},
      {"dualpipev", 4, 10}, {"dualpipe", 8, 20}, {"1f1b", 16, 120},          {"zb-h1", 32, 256}};
  for (const auto& [name, ranks, microbatches] : sizes)
    for (const int columns : {40, 80, 120, 200}) {
      SCOPED_TRACE(fmt::format("{} {} {} on {} columns", name, ranks, microbatches, columns));
      const auto rows = timed_rows(make(name, ranks, microbatches), {});
      const std::string text = print_grid(rows, {.columns = columns, .time = GridTime::Units});
      const std::string colored =
          print_grid(rows, {.columns = columns, .color = GridColor::Ansi, .time = GridTime::Units});
      const std::vector<std::string> all = lines(text);
      std::vector<std::string> painted = lines(plain(colored));
      ASSERT_EQ(all.size(), painted.size());
      EXPECT_LE(all.size(), 125u);
      for (size_t i = 0; i + 1 < all.size(); ++i) {  // the last line is the legend
        EXPECT_LE(all[i].size(), static_cast<size_t>(columns)) << all[i];
        std::string undashed = all[i];
        std::ranges::replace(undashed, '-', ' ');
        undashed.erase(undashed.find_last_not_of(' ') + 1);
        painted[i].erase(painted[i].find_last_not_of(' ') + 1);
        EXPECT_EQ(painted[i], undashed);
      }
    }
}

/// On one page, the column of a label is its time.
TEST(Grid, CellsStandWhereTheirTimeIs) {
  const Timeline timeline = make("zb-h1", 3, 6);
  const auto rows = timed_rows(timeline, {});
  const std::vector<std::string> picture = lines(print_grid(rows, {.columns = 500, .time = GridTime::Units}));
  for (size_t r = 0; r < rows.size(); ++r)
    for (const TimedCell& cell : rows[r].cells) {
      const std::string label = print(cell.cell.first).substr(1);  // stages are one digit
      EXPECT_EQ(picture[r + 1].substr(6 + static_cast<size_t>(cell.start) * 3, 2), label);
    }
  EXPECT_EQ(picture[0].substr(6), "|0             |5             |10            |15");
}

TEST(Grid, NothingToDrawIsEmpty) {
  EXPECT_EQ(print_grid({}, {}), "");
  EXPECT_EQ(print_grid({TimedRow{{0}, {}}}, {}), "");
}

}  // namespace
}  // namespace piper
