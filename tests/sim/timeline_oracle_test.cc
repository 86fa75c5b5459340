// Bare timelines against published numbers: makespans, idle times and peaks of other systems' schedules, bubble rates
// of the zero-bubble paper.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "sim/bare_timeline.h"
#include "timelines/library.h"
#include "timelines/load_timeline.h"

namespace piper {
namespace {

const std::filesystem::path oracles =
    std::filesystem::path(PIPER_SOURCE_DIR) / ".." / "shared" / "oracles" / "schedules";

using Row = std::map<std::string, std::string>;

std::vector<Row> read_table(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const auto cells = [](const std::string& text) {
    std::vector<std::string> out;
    std::stringstream stream(text);
    for (std::string cell; std::getline(stream, cell, ',');) {
      if (cell.ends_with('\r')) cell.pop_back();
      out.push_back(cell);
    }
    return out;
  };
  const std::vector<std::string> header = cells(line);
  std::vector<Row> rows;
  while (std::getline(in, line)) {
    const auto values = cells(line);
    Row row;
    for (size_t i = 0; i < header.size(); ++i) row[header[i]] = i < values.size() ? values[i] : "";
    rows.push_back(std::move(row));
  }
  return rows;
}

template <class T>
std::vector<T> numbers(const std::string& text) {
  std::vector<T> out;
  std::stringstream stream(text);
  for (T value; stream >> value;) out.push_back(value);
  return out;
}

TEST(TimelineOracles, EveryRowOfTheMakespanTable) {
  if (!std::filesystem::exists(oracles)) GTEST_SKIP() << "no oracles at " << oracles;
  const auto rows = read_table(oracles / "makespan.csv");
  ASSERT_GT(rows.size(), 300u);
  for (const Row& row : rows) {
    SCOPED_TRACE(row.at("file") + " " + row.at("cost"));
    const auto parsed = load_timeline((oracles / row.at("file")).string());
    ASSERT_TRUE(parsed);
    const TimelineCosts costs{
        std::stod(row.at("T_F")), std::stod(row.at("T_I")), std::stod(row.at("T_W")), std::stod(row.at("T_comm")), {}};
    std::optional<double> overlap;
    if (!row.at("T_overlap_pair").empty()) overlap = std::stod(row.at("T_overlap_pair"));
    const TimelineReport report = timeline_report(strip(parsed->actions), costs, overlap);
    EXPECT_EQ(report.makespan, std::stod(row.at("makespan")));
    EXPECT_EQ(report.bubble, numbers<double>(row.at("idle_per_rank")));
    EXPECT_EQ(report.span_bubble, numbers<double>(row.at("span_bubble_per_rank")));
    EXPECT_EQ(report.peak_until_w, numbers<int>(row.at("peak_act_until_W")));
    EXPECT_EQ(report.peak_until_i, numbers<int>(row.at("peak_act_until_I")));
    EXPECT_EQ(*std::ranges::max_element(report.bubble), std::stod(row.at("max_idle")));
  }
}

/// (cost - m (T_F + T_B + T_W)) / cost, where cost is the longest span of a rank.
double bubble_rate(const TimelineReport& report, double work) {
  const double cost = *std::ranges::max_element(report.span);
  return (cost - work) / cost;
}

TEST(TimelineOracles, BubbleRatesOfTheZeroBubblePaper) {
  if (!std::filesystem::exists(oracles)) GTEST_SKIP() << "no oracles at " << oracles;
  const std::map<std::string, std::string> columns = {{"pub_1F1B", "1f1b"},
                                                      {"pub_ZB_H1", "zb-h1"},
                                                      {"pub_ZB_H2", "zb-h2"},
                                                      {"pub_ZB_1p", "zb-1p"},
                                                      {"pub_ZB_2p", "zb-2p"}};
  int checked = 0;
  for (const Row& row : read_table(oracles / "zb_paper" / "table5_bubble_rates.csv")) {
    const int ranks = std::stoi(row.at("p")), microbatches = std::stoi(row.at("m"));
    const TimelineCosts costs{std::stod(row.at("T_F_us")),
                              std::stod(row.at("T_B_us")),
                              std::stod(row.at("T_W_us")),
                              std::stod(row.at("T_comm_us")),
                              {}};
    const double work = microbatches * (costs.F + costs.I + costs.W);
    const double hidden = std::stod(row.at("hidden")), heads = std::stod(row.at("heads"));
    for (const auto& [column, name] : columns) {
      if (row.at(column).empty()) continue;
      SCOPED_TRACE(fmt::format("{} {} p {} m {}", row.at("model"), name, ranks, microbatches));
      TimelineRequest request;
      request.ranks = ranks;
      request.microbatches = microbatches;
      if (const TimelineInfo* info = find_timeline(name); info->uses_costs) request.costs = costs;
      if (name == "zb-1p" || name == "zb-2p") {
        const double kept = 34 * hidden + 5 * heads * 1024;
        request.memory = TimelineMemory{kept, kept - 32 * hidden};
      }
      auto timeline = make_timeline(name, request, {});
      ASSERT_TRUE(timeline) << render(timeline.error());
      const double rate = bubble_rate(timeline_report(*timeline, costs, {}), work);
      EXPECT_EQ(fmt::format("{:.4f}", rate), fmt::format("{:.4f}", std::stod(row.at(column))));
      ++checked;
    }
  }
  EXPECT_GE(checked, 15);
}

}  // namespace
}  // namespace piper
