// The library of timelines: equal to the published orders, valid and within the published bubbles at many sizes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "timelines/csv.h"
#include "timelines/library.h"
#include "timelines/validate.h"

namespace piper {
namespace {

// ---- a clock for timelines -----------------------------------------------------------------------------------------

struct Clock {
  TimelineCosts costs;
  std::optional<double> pair;  // F + I + W unless given
};

/// Times and memory per rank. Activations are kept from F until B, or until W (I) of the split backward.
struct Measured {
  double makespan = 0;
  std::vector<double> idle;         // makespan - busy
  std::vector<double> span_bubble;  // last end - first start - busy
  std::vector<double> span;
  std::vector<int> peak;
  std::vector<int> peak_until_I;
};

class Evaluator {
 public:
  Evaluator(const Timeline& timeline, Clock clock) : timeline_(timeline), clock_(clock), next_(timeline.ranks.size()) {
    for (size_t rank = 0; rank < timeline.ranks.size(); ++rank)
      for (const TimelineCell& cell : timeline.ranks[rank])
        for (const TimelineOp& op : ops(cell)) {
          stages_ = std::max(stages_, op.stage + 1);
          if (op.pass == Pass::B) whole_.insert({{op.stage, op.microbatch}, true});
        }
  }

  Measured run() {
    const size_t ranks = timeline_.ranks.size();
    std::vector<double> end(ranks, 0), first(ranks, -1), busy(ranks, 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t rank = 0; rank < ranks; ++rank)
        while (next_[rank] < timeline_.ranks[rank].size()) {
          const TimelineCell& cell = timeline_.ranks[rank][next_[rank]];
          const std::optional<double> ready = ready_time(cell, static_cast<int>(rank));
          if (!ready) break;
          const double start = std::max(end[rank], *ready);
          if (first[rank] < 0) first[rank] = start;
          end[rank] = start + duration(cell);
          busy[rank] += duration(cell);
          for (const TimelineOp& op : ops(cell)) done_[op] = {end[rank], static_cast<int>(rank)};
          next_[rank] += 1;
          progress = true;
        }
    }
    Measured result;
    result.makespan = *std::ranges::max_element(end);
    for (size_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(next_[rank], timeline_.ranks[rank].size()) << "deadlock on rank " << rank;
      result.idle.push_back(result.makespan - busy[rank]);
      result.span.push_back(end[rank] - first[rank]);
      result.span_bubble.push_back(result.span.back() - busy[rank]);
      result.peak.push_back(peak(rank, Pass::BW));
      result.peak_until_I.push_back(peak(rank, Pass::BI));
    }
    return result;
  }

 private:
  static std::vector<TimelineOp> ops(const TimelineCell& cell) {
    return cell.second ? std::vector{cell.first, *cell.second} : std::vector{cell.first};
  }

  double duration(const TimelineCell& cell) const {
    const TimelineCosts& c = clock_.costs;
    if (cell.second) return clock_.pair.value_or(c.F + c.I + c.W);
    switch (cell.first.pass) {
      case Pass::F:
        return c.F;
      case Pass::B:
        return c.I + c.W;
      case Pass::BI:
        return c.I;
      default:
        return c.W;
    }
  }

  std::optional<double> ready_time(const TimelineCell& cell, int rank) const {
    double ready = 0;
    for (const TimelineOp& op : ops(cell))
      for (const TimelineOp& needed : needs(op)) {
        const auto found = done_.find(needed);
        if (found == done_.end()) return std::nullopt;
        ready = std::max(ready, found->second.first + (found->second.second == rank ? 0 : clock_.costs.comm));
      }
    return ready;
  }

  std::vector<TimelineOp> needs(const TimelineOp& op) const {
    if (op.pass == Pass::BW) return {{op.stage, Pass::BI, op.microbatch}};
    if (op.pass == Pass::F) {
      if (op.stage == 0) return {};
      return {{op.stage - 1, Pass::F, op.microbatch}};
    }
    std::vector<TimelineOp> all = {{op.stage, Pass::F, op.microbatch}};
    if (op.stage + 1 < stages_)
      all.push_back({op.stage + 1, whole_.contains({op.stage + 1, op.microbatch}) ? Pass::B : Pass::BI, op.microbatch});
    return all;
  }

  int peak(size_t rank, Pass release) const {
    int live = 0, most = 0;
    for (const TimelineCell& cell : timeline_.ranks[rank])
      for (const TimelineOp& op : ops(cell)) {
        if (op.pass == Pass::F) ++live;
        if (op.pass == Pass::B || op.pass == release) --live;
        most = std::max(most, live);
      }
    return most;
  }

  const Timeline& timeline_;
  Clock clock_;
  int stages_ = 0;
  std::map<std::pair<int, int>, bool> whole_;
  std::vector<size_t> next_;
  std::map<TimelineOp, std::pair<double, int>> done_;
};

Measured measure(const Timeline& timeline, const Clock& clock = {}) {
  return Evaluator(timeline, clock).run();
}

double most(const std::vector<double>& values) {
  return *std::ranges::max_element(values);
}
int most(const std::vector<int>& values) {
  return *std::ranges::max_element(values);
}

// ---- making timelines ----------------------------------------------------------------------------------------------

Timeline make(std::string_view name, const TimelineRequest& request) {
  Result<Timeline> timeline = make_timeline(name, request, {});
  if (!timeline) ADD_FAILURE() << name << ": " << render(timeline.error());
  return timeline ? *std::move(timeline) : Timeline{};
}

/// Makes it, and expects it to be valid and complete.
Timeline make_valid(std::string_view name, const TimelineRequest& request) {
  Timeline timeline = make(name, request);
  const TimelineInfo& info = *find_timeline(name);
  const int per_rank = request.stages_per_rank ? request.stages_per_rank : info.default_stages_per_rank;
  Checked checked =
      validate(timeline, {}, {stage_count(info.placement, request.ranks, per_rank), request.microbatches});
  if (!checked)
    ADD_FAILURE() << name << " p " << request.ranks << " m " << request.microbatches << " v " << per_rank << " g "
                  << request.group.value_or(0) << ": " << render(checked.error());
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank)
    for (const TimelineCell& cell : timeline.ranks[rank])
      EXPECT_EQ(rank_of(info.placement, cell.first.stage, request.ranks,
                        direction_of(info.placement, cell.first.microbatch, request.microbatches)),
                static_cast<int>(rank));
  return timeline;
}

std::string refusal(std::string_view timeline, const TimelineRequest& request) {
  Result<Timeline> result = make_timeline(timeline, request, {});
  return result ? "accepted" : std::string(name(result.error().code)) + " " + render(result.error());
}

// ---- published orders ----------------------------------------------------------------------------------------------

const std::filesystem::path oracles = std::filesystem::path(PIPER_SOURCE_DIR) / "../shared/oracles/schedules";

/// The text of a file, with lines that end in \n only.
std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream stream;
  stream << file.rdbuf();
  std::string text = stream.str();
  std::erase(text, '\r');
  return text;
}

std::vector<std::string> split(const std::string& line, char at) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, at);) cells.push_back(cell);
  return cells;
}

/// Rows of a table without quoted cells in the columns that are read.
std::vector<std::map<std::string, std::string>> read_table(const std::filesystem::path& path) {
  std::vector<std::string> lines = split(read(path), '\n');
  const std::vector<std::string> header = split(lines.at(0), ',');
  std::vector<std::map<std::string, std::string>> rows;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> cells = split(lines[i], ',');
    auto& row = rows.emplace_back();
    for (size_t c = 0; c < std::min(header.size(), cells.size()); ++c) row[header[c]] = cells[c];
  }
  return rows;
}

/// The costs and activation sizes of the zero-bubble paper's 1.5 B model (one row of its table).
void use_paper_setting(std::map<std::string, std::string>& row, TimelineRequest& request) {
  const auto number = [&](const char* key) { return std::stod(row.at(key)); };
  request.costs = {number("T_F_us"), number("T_B_us"), number("T_W_us"), number("T_comm_us")};
  const double width = number("hidden"), heads = number("heads");
  request.memory = {.kept_by_F = 34 * width + 5 * heads * 1024, .freed_by_I = 2 * width + 5 * heads * 1024};
}

struct Oracle {
  std::string file;
  std::string timeline;
  TimelineRequest request;
};

std::vector<Oracle> compute_oracles() {
  const std::map<std::string, std::string> names = {
      {"GPipe", "gpipe"},       {"LoopedBFS", "looped-bfs"},
      {"1F1B", "1f1b"},         {"Interleaved1F1B", "interleaved-1f1b"},
      {"ZBH1", "zb-h1"},        {"ZB-H1", "zb-h1"},
      {"ZB-H2", "zb-h2"},       {"InterleavedZeroBubble", "interleaved-zb"},
      {"ZB1P", "zb-1p"},        {"ZB-1p", "zb-1p"},
      {"ZB2P", "zb-2p"},        {"ZB-2p", "zb-2p"},
      {"ZBV", "zb-v"},          {"ZBVZeroBubble", "zb-v"},
      {"DualPipe", "dualpipe"}, {"DualPipeV", "dualpipev"},
      {"1F1BV", "1f1b-v"},      {"Vhalf", "v-half"},
      {"Vmin", "v-min"},
  };
  std::vector<Oracle> all;
  for (auto& row : read_table(oracles / "MANIFEST.csv")) {
    if (row.at("kind") != "compute") continue;
    const std::string& file = row.at("file");
    Oracle oracle{file, names.at(row.at("schedule")), {}};
    oracle.request.ranks = std::stoi(row.at("ranks"));
    oracle.request.microbatches = std::stoi(row.at("microbatches"));
    oracle.request.stages_per_rank = std::stoi(row.at("stages_per_rank"));
    if (const size_t group = file.find("_group"); group != file.npos)
      oracle.request.group = std::stoi(file.substr(group + 6));
    if (row.at("schedule") == "ZBV") oracle.request.costs = TimelineCosts{};
    if (row.at("schedule") == "ZB-1p" || row.at("schedule") == "ZB-2p")
      use_paper_setting(*read_table(oracles / "zb_paper/table5_bubble_rates.csv").begin(), oracle.request);
    all.push_back(oracle);
  }
  return all;
}

TEST(PublishedOrders, AllAreReproduced) {
  if (!std::filesystem::exists(oracles)) GTEST_SKIP() << "no published orders beside the project";
  std::map<std::string, int> equal;
  int total = 0;
  for (const Oracle& oracle : compute_oracles()) {
    SCOPED_TRACE(oracle.file);
    Result<Timeline> published = parse_csv(make_source(oracle.file, read(oracles / oracle.file)));
    ASSERT_TRUE(published) << render(published.error());
    EXPECT_TRUE(validate(*published, {}));
    const std::string ours = print_csv(make_valid(oracle.timeline, oracle.request));
    // One published file has empty cells for idle steps: compare with it read and written again.
    EXPECT_EQ(ours, print_csv(*published));
    if (oracle.file.find("upstream/zb1p") == oracle.file.npos) {
      EXPECT_EQ(print_csv(*published), read(oracles / oracle.file));
    }
    equal[oracle.timeline] += ours == print_csv(*published);
    ++total;
  }
  EXPECT_EQ(total, 88);
  for (const auto& [name, count] : equal) std::cout << "  " << name << ": " << count << " equal\n";
}

/// Checks our clock, on which the properties below rest, against published makespans.
TEST(PublishedOrders, ClockAgreesWithPublishedTimes) {
  if (!std::filesystem::exists(oracles)) GTEST_SKIP() << "no published times beside the project";
  for (auto& row : read_table(oracles / "makespan.csv")) {
    SCOPED_TRACE(row.at("file") + " " + row.at("cost"));
    Result<Timeline> timeline = parse_csv(make_source("", read(oracles / row.at("file"))));
    ASSERT_TRUE(timeline);
    const auto number = [&](const char* key) { return std::stod(row.at(key)); };
    Clock clock{{number("T_F"), number("T_I"), number("T_W"), number("T_comm")}, {}};
    if (!row.at("T_overlap_pair").empty()) clock.pair = number("T_overlap_pair");
    const Measured measured = measure(*timeline, clock);
    EXPECT_NEAR(measured.makespan, number("makespan"), 1e-6 * measured.makespan);
    EXPECT_NEAR(most(measured.idle), number("max_idle"), 1e-6 * measured.makespan);
    EXPECT_EQ(fmt::format("{}", fmt::join(measured.peak, " ")), row.at("peak_act_until_W"));
    EXPECT_EQ(fmt::format("{}", fmt::join(measured.peak_until_I, " ")), row.at("peak_act_until_I"));
  }
}

TEST(PublishedOrders, BubbleRatesOfTheZeroBubblePaper) {
  if (!std::filesystem::exists(oracles)) GTEST_SKIP() << "no published rates beside the project";
  const std::map<std::string, std::string> columns = {{"pub_1F1B", "1f1b"},
                                                      {"pub_ZB_H1", "zb-h1"},
                                                      {"pub_ZB_H2", "zb-h2"},
                                                      {"pub_ZB_1p", "zb-1p"},
                                                      {"pub_ZB_2p", "zb-2p"}};
  for (auto& row : read_table(oracles / "zb_paper/table5_bubble_rates.csv"))
    for (const auto& [column, name] : columns) {
      TimelineRequest request;
      request.ranks = std::stoi(row.at("p"));
      request.microbatches = std::stoi(row.at("m"));
      use_paper_setting(row, request);
      if (!find_timeline(name)->takes_memory) request.memory.reset();
      const TimelineCosts costs = *request.costs;
      const double cost = most(measure(make(name, request), {costs, {}}).span);
      const double rate = 1 - request.microbatches * (costs.F + costs.I + costs.W) / cost;
      EXPECT_NEAR(rate, std::stod(row.at(column)), 0.00005) << name << " m " << request.microbatches;
    }
}

// ---- published formulas --------------------------------------------------------------------------------------------

const std::vector<int> some_ranks = {1, 2, 3, 4, 5, 7, 8};
const std::vector<TimelineCosts> some_costs = {{1, 1, 1, 0}, {2, 2, 1, 0}, {5, 3, 2, 0}};

TEST(Formulas, GPipeAnd1F1B) {
  for (const int p : some_ranks)
    for (const int m : {1, 2, 3, 5, 8, 16})
      for (const TimelineCosts& costs : some_costs) {
        const double bubble = (p - 1) * (costs.F + costs.I + costs.W);
        const Measured gpipe = measure(make_valid("gpipe", {.ranks = p, .microbatches = m}), {costs, {}});
        const Measured one_f = measure(make_valid("1f1b", {.ranks = p, .microbatches = m}), {costs, {}});
        for (int r = 0; r < p; ++r) {
          EXPECT_DOUBLE_EQ(gpipe.idle[r], bubble);
          EXPECT_DOUBLE_EQ(one_f.idle[r], bubble);
          EXPECT_EQ(gpipe.peak[r], m);
          EXPECT_EQ(one_f.peak[r], std::min(m, p - r));
        }
      }
}

TEST(Formulas, LoopedBfs) {
  for (const int p : some_ranks)
    for (const int m : {1, 3, 8, 12})
      for (const int v : {1, 2, 3}) {
        const Measured got = measure(make_valid("looped-bfs", {.ranks = p, .microbatches = m, .stages_per_rank = v}));
        EXPECT_EQ(most(got.peak), m * v);
        if (m >= p) {
          EXPECT_DOUBLE_EQ(most(got.idle), (p - 1) * 3);
        }
      }
}

TEST(Formulas, Interleaved) {
  for (const int p : some_ranks)
    for (int m = 1; m <= 20; ++m)
      for (const int v : {2, 3, 4}) {
        const TimelineRequest request = {.ranks = p, .microbatches = m, .stages_per_rank = v};
        const Measured one_f = measure(make_valid("interleaved-1f1b", request));
        const Measured zero = measure(make_valid("interleaved-zb", request));
        if (m % p != 0) continue;
        EXPECT_DOUBLE_EQ(most(one_f.idle), (p - 1) * 3);
        EXPECT_DOUBLE_EQ(most(zero.span_bubble), p - 1);
        EXPECT_EQ(most(zero.peak), v * p);
        for (int r = 0; r < p; ++r) EXPECT_EQ(one_f.peak[r], std::min(m * v, (v - 1) * p + 2 * (p - 1 - r) + 1));
      }
}

TEST(Formulas, InterleavedWithGroupsIsValidOrRefused) {
  for (const int p : {2, 3, 4, 6})
    for (int m = 1; m <= 16; ++m)
      for (int g = 1; g <= 17; ++g)
        for (const int v : {2, 3}) {
          const TimelineRequest request = {.ranks = p, .microbatches = m, .stages_per_rank = v, .group = g};
          if (m <= g || (g >= p && (m % g == 0 || g + m % g >= 2 * p - 2)))
            make_valid("interleaved-1f1b", request);
          else
            EXPECT_EQ(refusal("interleaved-1f1b", request).substr(0, 4), "E314");
          if (m <= g || g >= p)
            make_valid("interleaved-zb", request);
          else
            EXPECT_EQ(refusal("interleaved-zb", request).substr(0, 4), "E314");
        }
}

TEST(Formulas, ZeroBubbleOnALine) {
  for (const int p : some_ranks)
    for (const int m : {1, 2, 3, 5, 8, 15, 20})
      for (const TimelineCosts& c : some_costs) {
        const Measured h1 = measure(make_valid("zb-h1", {.ranks = p, .microbatches = m}), {c, {}});
        const Measured h2 = measure(make_valid("zb-h2", {.ranks = p, .microbatches = m}), {c, {}});
        if (m >= p) {
          EXPECT_DOUBLE_EQ(most(h1.span_bubble), (p - 1) * (c.F + c.I - c.W));
          EXPECT_EQ(most(h1.peak), p);
          for (int r = 0; r < p; ++r) EXPECT_EQ(h1.peak_until_I[r], p - r);
        } else {
          EXPECT_DOUBLE_EQ(h1.makespan, (m + p - 1) * (c.F + c.I) + c.W);
          EXPECT_EQ(most(h1.peak), m);
        }
        EXPECT_LE(most(h2.peak), 2 * p - 1);
        if (m >= 2 * p - 1) {
          EXPECT_EQ(most(h2.peak), 2 * p - 1);
          EXPECT_NEAR(most(h2.span_bubble), (p - 1) * (c.F + c.I - 2 * c.W), 1e-9) << p << " " << m << " " << c.F;
        }
      }
}

TEST(Formulas, ZeroBubbleWithLimit) {
  for (const int p : some_ranks)
    for (const int m : {1, 2, 4, 9, 16})
      for (const TimelineCosts& costs : some_costs) {
        TimelineRequest request = {.ranks = p, .microbatches = m, .costs = costs};
        const Measured one = measure(make_valid("zb-1p", request), {costs, {}});
        const Measured two = measure(make_valid("zb-2p", request), {costs, {}});
        EXPECT_LE(most(two.span), most(one.span) + 1e-9) << p << " " << m;
        EXPECT_LE(most(one.peak_until_I), p);
        if (costs.F == costs.W) {
          const Measured h1 = measure(make_valid("zb-h1", {.ranks = p, .microbatches = m}), {costs, {}});
          EXPECT_LE(most(one.span), most(h1.span)) << p << " " << m;
        }
        if (costs.F == costs.W && m >= 2 * p) {
          EXPECT_EQ(most(two.span_bubble), 0) << p << " " << m;
        }
        EXPECT_LE(most(two.peak_until_I), 2 * p);
        for (const double limit : {1.0, 1.5, 3.0}) {
          request.memory_limit = limit;
          make_valid("zb-1p", request);
        }
      }
}

TEST(Formulas, ZeroBubbleOnAV) {
  for (const int p : some_ranks)
    for (const int m : {1, 2, 3, 6, 9, 15, 20}) {
      const Measured rule = measure(make_valid("zb-v", {.ranks = p, .microbatches = m}));
      const Measured timed = measure(make_valid("zb-v", {.ranks = p, .microbatches = m, .costs = TimelineCosts{}}));
      EXPECT_LE(most(rule.peak), 2 * p);
      EXPECT_LE(timed.makespan, rule.makespan);
      if (m >= 2 * p - 1) {
        EXPECT_EQ(most(rule.span_bubble), 0) << p << " " << m;
        EXPECT_EQ(rule.makespan, timed.makespan) << p << " " << m;
        EXPECT_EQ(rule.peak, std::vector<int>(p, 2 * p));
      }
      for (const TimelineCosts& costs :
           {TimelineCosts{2, 2, 1, 0.5}, TimelineCosts{1, 1.2, 0.7, 0.1}, TimelineCosts{1, 1, 3, 0}})
        make_valid("zb-v", {.ranks = p, .microbatches = m, .costs = costs});
    }
}

TEST(Formulas, DualPipe) {
  for (const TimelineCosts& c : some_costs)
    for (int ranks = 1; ranks <= 6; ++ranks)
      for (const int extra : {0, 1, 2, 5}) {
        const double pair = c.F + c.I + c.W - 0.5;
        const double bubble = (ranks - 1) * (pair + c.F - 2 * c.W);
        const int m = 2 * ranks + extra;
        const Measured v = measure(make_valid("dualpipev", {.ranks = ranks, .microbatches = m}), {c, pair});
        const Measured two_way =
            measure(make_valid("dualpipe", {.ranks = 2 * ranks, .microbatches = 2 * m}), {c, pair});
        EXPECT_DOUBLE_EQ(most(v.idle), bubble);
        EXPECT_DOUBLE_EQ(most(two_way.idle), bubble);
        EXPECT_EQ(most(v.peak), 2 * ranks + 1) << ranks << " " << m;
        EXPECT_EQ(most(two_way.peak), most(v.peak));
      }
}

TEST(Formulas, LowMemoryOnAV) {
  for (int p = 1; p <= 18; ++p)
    for (const int m : {1, 2, 3, 7, 4 * p}) {
      SCOPED_TRACE(fmt::format("p {} m {}", p, m));
      const TimelineRequest request = {.ranks = p, .microbatches = m};
      const Measured one_f = measure(make_valid("1f1b-v", request));
      const Measured half = measure(make_valid("v-half", request));
      const Measured min = measure(make_valid("v-min", request));
      if (m < 4 * p) continue;
      EXPECT_EQ(most(one_f.peak), 2 * (2 * p / 3 + 1));
      EXPECT_EQ(most(half.peak), 2 * (p / 2 + 1));
      EXPECT_EQ(most(min.peak), 2 * ((p + 1) / 3 + 1));
      if (p % 3 == 1) {
        EXPECT_EQ(most(one_f.idle), 5 * (p - 1));
      }
      if (p == 8) {
        EXPECT_EQ(most(one_f.idle), 33);
      }
      if (p >= 4 && p % 2 == 0) {
        EXPECT_EQ(most(half.idle), 3 * p - 7);
      }
      if (p >= 3 && p % 2 == 1) {
        EXPECT_EQ(most(half.idle), 3 * p - 4);
      }
      if (p >= 2) {
        EXPECT_EQ(most(min.idle), p % 3 == 0 ? 4 * p - 7 : 4 * p - 5);
      }
    }
}

// ---- refusals ------------------------------------------------------------------------------------------------------

TEST(Refusals, UnknownName) {
  EXPECT_NE(refusal("zb-h3", {.ranks = 2, .microbatches = 4}).find("did you mean \"zb-h"), std::string::npos);
  EXPECT_EQ(refusal("nonsense", {}).substr(0, 4), "E315");
  EXPECT_EQ(refusal("interleaved_1f1b", {.ranks = 2, .microbatches = 4}), "accepted");
}

TEST(Refusals, IllegalSizesNameLegalOnes) {
  const auto expect = [](std::string_view name, const TimelineRequest& request, std::string_view help) {
    const std::string text = refusal(name, request);
    EXPECT_EQ(text.substr(0, 4), "E314") << text;
    EXPECT_NE(text.find(help), std::string::npos) << text;
  };
  expect("dualpipev", {.ranks = 4, .microbatches = 7}, "use at least 8 microbatches, or at most 3 ranks");
  expect("dualpipe", {.ranks = 3, .microbatches = 8}, "use 2 or 4 ranks");
  expect("dualpipe", {.ranks = 4, .microbatches = 9}, "use 8 or 10 microbatches");
  expect("dualpipe", {.ranks = 4, .microbatches = 6}, "use at least 8 microbatches, or at most 2 ranks");
  expect("interleaved-1f1b", {.ranks = 4, .microbatches = 8, .stages_per_rank = 1}, "or 1f1b");
  expect("interleaved-1f1b", {.ranks = 4, .microbatches = 5, .stages_per_rank = 3, .group = 4}, "use groups of 5");
  expect("interleaved-1f1b", {.ranks = 8, .microbatches = 22, .stages_per_rank = 2, .group = 9},
         "use groups of 8 or 11");
  expect("interleaved-zb", {.ranks = 4, .microbatches = 8, .stages_per_rank = 2, .group = 3}, "use groups of 4");
  expect("1f1b", {.ranks = 4, .microbatches = 8, .stages_per_rank = 2}, "1 stage per rank");
  expect("1f1b", {.ranks = 4, .microbatches = 8, .group = 2}, "leave the group out");
  expect("zb-v", {.ranks = 4, .microbatches = 8, .memory_limit = 4}, "zb-1p");
  expect("zb-1p", {.ranks = 4, .microbatches = 8, .memory_limit = 0.5}, "1 or more");
  expect("zb-1p", {.ranks = 4, .microbatches = 8, .costs = TimelineCosts{-1, 1, 1, 0}}, "0 or more");
  expect("gpipe", {.ranks = 0, .microbatches = 8}, "1 rank");
  expect("gpipe", {.ranks = 2, .microbatches = -8}, "1 microbatch");
}

TEST(Refusals, TooLarge) {
  EXPECT_EQ(refusal("gpipe", {.ranks = 1 << 30, .microbatches = 1 << 30}).substr(0, 4), "E113");
}

// ---- validate ------------------------------------------------------------------------------------------------------

std::string verdict(const std::string& csv, const TimelineExtent& extent = {}) {
  Result<Timeline> timeline = parse_csv(make_source("test", csv));
  if (!timeline) return "unreadable";
  Checked checked = validate(*timeline, {}, extent);
  return checked ? "valid" : render(checked.error());
}

void expect_verdict(const std::string& csv, std::string_view part, const TimelineExtent& extent = {}) {
  EXPECT_NE(verdict(csv, extent).find(part), std::string::npos) << csv << " gives " << verdict(csv, extent);
}

TEST(Validate, AcceptsWholeAndSplitBackwards) {
  expect_verdict("0F0,0B0\n1F0,1I0,1W0\n", "valid");
  expect_verdict("0F0,1F1,0F1,(1F0;0B1)OVERLAP_F_B,1B1,1B0,0B0\n", "rank 0, cell 1 waits for 0F1");
}

TEST(Validate, NamesWhatIsMissingOrTwice) {
  expect_verdict("0F0\n", "0B0 is missing");
  expect_verdict("0F0,0I0\n", "0W0 is missing");
  expect_verdict("0F0,0W0\n", "0I0 is missing");
  expect_verdict("0F0,0B0,0F2,0B2\n", "0F1 is missing");
  expect_verdict("0F0,0B0,2000000000F2000000000\n", "0F1 is missing");
  expect_verdict("0F0,0B0\n", "1F0 is missing", {.stages = 2, .microbatches = 1});
  expect_verdict("0F0,0B0,1F0,1B0\n", "1F0 at rank 0, cell 2 is outside of 1 stages", {.stages = 1, .microbatches = 1});
  expect_verdict("0F0,0B0,0F0\n", "0F0 at rank 0, cell 2 is there already at rank 0, cell 0");
  expect_verdict("0F0,0B0,0W0\n", "0W0 at rank 0, cell 2 repeats the work of 0B0 at rank 0, cell 1");
  expect_verdict("0F0\n0B0\n", "0B0 at rank 1, cell 0 is on another rank than 0F0 at rank 0, cell 0");
}

TEST(Validate, StagesStayOnTheirRanks) {
  expect_verdict("0F0,0B0\n0F1,0B1\n", "valid");
  expect_verdict("0F0,0B0\n0F1,0B1\n0F2,0B2\n",
                 "stage 0 runs on rank 1 for microbatch 1 but on rank 2 for microbatch 2");
}

TEST(Validate, TellsTheCycleOfADeadlock) {
  const std::string text = verdict("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  EXPECT_NE(text.find("deadlock: 0B0 at rank 0, cell 1 waits for 1B0, which comes later at rank 1, cell 3"), text.npos)
      << text;
  EXPECT_NE(text.find("1F1 at rank 1, cell 0 waits for 0F1, which comes later at rank 0, cell 2"), text.npos) << text;
}

TEST(Validate, DependentPairNeverStarts) {
  expect_verdict("0F0,(1F0;1B0)OVERLAP_F_B,0B0\n", "deadlock: 1B0 at rank 0, cell 1 waits for 1F0");
}

TEST(Validate, LargeTimeline) {
  const Timeline timeline = make("dualpipev", {.ranks = 64, .microbatches = 512});
  EXPECT_TRUE(validate(timeline, {}));
  size_t cells = 0, ops = 0;
  for (const auto& row : timeline.ranks)
    for (const TimelineCell& cell : row) {
      cells += 1;
      ops += cell.second ? 2 : 1;
    }
  EXPECT_EQ(cells, 81857u);
  EXPECT_EQ(ops, 137184u);
}

// ---- text ----------------------------------------------------------------------------------------------------------

TEST(Csv, ReadsWhatItWrites) {
  const std::string text = "0F0,(3F2;0B0)OVERLAP_F_B,0I1,0W1\n1F0,1B0\n";
  Result<Timeline> timeline = parse_csv(make_source("t.csv", text));
  ASSERT_TRUE(timeline);
  EXPECT_EQ(print_csv(*timeline), text);
  EXPECT_EQ(timeline->ranks[0][1].second, (TimelineOp{0, Pass::B, 0}));
  EXPECT_EQ(print_csv(*parse_csv(make_source("t.csv", " 0F0 ,,0B0\r\n"))), "0F0,0B0\n");
}

TEST(Csv, PointsAtWhatItCannotRead) {
  for (const std::string cell : {"0X1", "F1", "0F", "0F1x", "0SEND_F", "0UNSHARD1", "(0F1;0B0)", "(0F1,0B0", "(0F1;0B0",
                                 "99999999999F0", "-1F0"}) {
    Result<Timeline> timeline = parse_csv(make_source("t.csv", "0F0,0B0\n1F0," + cell + ",1B0\n"));
    ASSERT_FALSE(timeline) << cell;
    EXPECT_EQ(timeline.error().code, ErrorCode::E101);
    EXPECT_EQ(position_of(timeline.error().where).line, 2);
    EXPECT_EQ(position_of(timeline.error().where).column, 5);
  }
  EXPECT_FALSE(parse_csv(make_source("t.csv", "")));
}

// ---- the table -----------------------------------------------------------------------------------------------------

TEST(Library, EveryRowIsFilledIn) {
  EXPECT_EQ(timeline_library().size(), 16u);
  for (const TimelineInfo& info : timeline_library()) {
    EXPECT_FALSE(info.title.empty() || info.paper.empty() || info.sizes.empty() || info.bubble.empty() ||
                 info.memory.empty())
        << info.name;
    EXPECT_EQ(find_timeline(info.name)->name, info.name);
  }
}

TEST(Library, PlacementsAreInverse) {
  for (const StagePlacement placement :
       {StagePlacement::Line, StagePlacement::Loop, StagePlacement::V, StagePlacement::W, StagePlacement::TwoWay})
    for (int rank = 0; rank < 6; ++rank)
      for (int chunk = 0; chunk < (placement == StagePlacement::Line ? 1 : 2); ++chunk)
        EXPECT_EQ(rank_of(placement, stage_of(placement, rank, chunk, 6), 6, chunk), rank);
}

}  // namespace
}  // namespace piper
