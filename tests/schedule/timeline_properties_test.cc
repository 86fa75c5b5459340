// Hundreds of random sizes and costs for every timeline of the library, and large ones: valid, free of deadlock, with
// the published bubble and the published peak of activations wherever the publication says when it holds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "property/random.h"
#include "timelines/clock.h"
#include "timelines/library.h"
#include "timelines/validate.h"

namespace piper {
namespace {

using property::Random;

struct Sizes {
  int p = 1, m = 1, v = 1;
};

/// Times and memory of the ranks. Activations are kept from F until B, or until W (I) of a split backward.
struct Measured {
  double makespan = 0;
  std::vector<double> idle;         // makespan - busy
  std::vector<double> span_bubble;  // last end - first start - busy
  std::vector<int> peak;
  std::vector<int> peak_until_I;
};

int peak_of(const std::vector<TimelineCell>& row, Pass release) {
  int live = 0, most = 0;
  const auto count = [&](const TimelineOp& op) {
    if (op.pass == Pass::F) ++live;
    if (op.pass == Pass::B || op.pass == release) --live;
    most = std::max(most, live);
  };
  for (const TimelineCell& cell : row) {
    count(cell.first);
    if (cell.second) count(*cell.second);
  }
  return most;
}

Measured measure(const Timeline& timeline, const TimelineCosts& costs) {
  const auto times = run_clock(timeline, costs);
  Measured out;
  for (const auto& row : times) out.makespan = std::max(out.makespan, row.back().end);
  for (size_t r = 0; r < times.size(); ++r) {
    double busy = 0;
    for (const CellTime& time : times[r]) busy += time.end - time.start;
    out.idle.push_back(out.makespan - busy);
    out.span_bubble.push_back(times[r].back().end - times[r].front().start - busy);
    out.peak.push_back(peak_of(timeline.ranks[r], Pass::BW));
    out.peak_until_I.push_back(peak_of(timeline.ranks[r], Pass::BI));
  }
  return out;
}

template <class T>
T most(const std::vector<T>& values) {
  return *std::ranges::max_element(values);
}

bool unit(const TimelineCosts& c) {
  return c.F == c.I && c.I == c.W;
}

/// What is published about a timeline, checked where its condition holds; true if a bubble was.
using Published = std::function<bool(const Sizes&, const TimelineCosts&, const Measured&)>;

bool gpipe(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  for (int r = 0; r < s.p; ++r) {
    EXPECT_DOUBLE_EQ(got.idle[r], (s.p - 1) * (c.F + c.I + c.W));
    EXPECT_EQ(got.peak[r], s.m);
  }
  return true;
}

bool one_f_one_b(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  for (int r = 0; r < s.p; ++r) {
    EXPECT_DOUBLE_EQ(got.idle[r], (s.p - 1) * (c.F + c.I + c.W));
    EXPECT_EQ(got.peak[r], std::min(s.m, s.p - r));
  }
  EXPECT_DOUBLE_EQ(most(got.idle) / got.makespan, double(s.p - 1) / (s.m + s.p - 1));
  return true;
}

bool interleaved_1f1b(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  if (s.m % s.p != 0) return false;
  EXPECT_DOUBLE_EQ(most(got.idle), (s.p - 1) * (c.F + c.I + c.W));
  for (int r = 0; r < s.p; ++r) EXPECT_EQ(got.peak[r], std::min(s.m * s.v, (s.v - 1) * s.p + 2 * (s.p - 1 - r) + 1));
  return true;
}

bool looped_bfs(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  EXPECT_EQ(most(got.peak), s.m * s.v);
  if (s.m < s.p) return false;
  EXPECT_DOUBLE_EQ(most(got.idle), (s.p - 1) * (c.F + c.I + c.W));
  return true;
}

bool zb_h1(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  EXPECT_EQ(most(got.peak), std::min(s.m, s.p));
  if (s.m >= s.p && c.W <= c.F) {
    EXPECT_NEAR(most(got.span_bubble), (s.p - 1) * (c.F + c.I - c.W), 1e-9);
    for (int r = 0; r < s.p; ++r) EXPECT_EQ(got.peak_until_I[r], s.p - r);
    return true;
  }
  if (s.m > s.p || c.W > std::min(c.F, c.I)) return false;
  EXPECT_NEAR(got.makespan, (s.m + s.p - 1) * (c.F + c.I) + c.W, 1e-9);
  return true;
}

bool interleaved_zb(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  if (s.m % s.p != 0) return false;
  EXPECT_EQ(most(got.peak), s.v * s.p);
  if (c.W > std::min(c.F, c.I)) return false;
  EXPECT_NEAR(most(got.span_bubble), (s.p - 1) * (c.F + c.I - c.W), 1e-9);
  return true;
}

bool zb_h2(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  EXPECT_LE(most(got.peak), std::min(s.m, 2 * s.p - 1));
  if (s.m < 2 * s.p - 1) return false;
  EXPECT_EQ(most(got.peak), 2 * s.p - 1);
  if (c.W > c.F || 2 * c.W > c.F + c.I) return false;
  EXPECT_NEAR(most(got.span_bubble), (s.p - 1) * (c.F + c.I - 2 * c.W), 1e-9);
  return true;
}

bool zb_1p(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  EXPECT_LE(most(got.peak_until_I), s.p);
  if (!unit(c) || s.m < s.p) return false;
  EXPECT_LE(most(got.span_bubble), (s.p - 1) * c.F + 1e-9);
  return true;
}

bool zb_2p(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  EXPECT_LE(most(got.peak_until_I), 2 * s.p);
  if (!unit(c) || s.m < 2 * s.p) return false;
  EXPECT_NEAR(most(got.span_bubble), 0, 1e-9);
  return true;
}

bool zb_v(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  EXPECT_LE(most(got.peak), 2 * s.p);
  if (!unit(c) || s.m < 2 * s.p - 1) return false;
  EXPECT_NEAR(most(got.span_bubble), 0, 1e-9);
  EXPECT_EQ(got.peak, std::vector<int>(static_cast<size_t>(s.p), 2 * s.p));
  return true;
}

/// `half` ranks of a V, or the pairs of ranks of two directions.
bool overlapped(int half, const TimelineCosts& c, const Measured& got) {
  EXPECT_EQ(most(got.peak), 2 * half + 1);
  if (!(c.F >= c.I && c.I >= c.W)) return false;
  const double pair = c.F + c.I + c.W;
  EXPECT_NEAR(most(got.idle), (half - 1) * (pair + c.F - 2 * c.W), 1e-9);
  return true;
}

constexpr double not_published = -1;

/// Patterns of a V: peaks and, at unit cost, idle times; both need a few periods.
bool pattern(const Sizes& s, const TimelineCosts& c, const Measured& got, int peak, double idle) {
  EXPECT_LE(most(got.peak), peak);
  if (s.m < 4 * s.p) return false;
  EXPECT_EQ(most(got.peak), peak);
  if (!unit(c) || idle == not_published) return false;
  EXPECT_NEAR(most(got.idle), idle * c.F, 1e-9);
  return true;
}

bool one_f_one_b_v(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  return pattern(s, c, got, 2 * (2 * s.p / 3 + 1), s.p % 3 == 1 ? 5.0 * (s.p - 1) : not_published);
}

bool v_half(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  const double idle = s.p % 2 == 0 && s.p >= 4   ? 3.0 * s.p - 7
                      : s.p % 2 == 1 && s.p >= 3 ? 3.0 * s.p - 4
                                                 : not_published;
  return pattern(s, c, got, 2 * (s.p / 2 + 1), idle);
}

bool v_min(const Sizes& s, const TimelineCosts& c, const Measured& got) {
  const double idle = s.p < 2 ? not_published : s.p % 3 == 0 ? 4.0 * s.p - 7 : 4.0 * s.p - 5;
  return pattern(s, c, got, 2 * ((s.p + 1) / 3 + 1), idle);
}

const std::map<std::string, Published>& published() {
  static const std::map<std::string, Published> all = {
      {"gpipe", gpipe},
      {"1f1b", one_f_one_b},
      {"interleaved-1f1b", interleaved_1f1b},
      {"looped-bfs", looped_bfs},
      {"zb-h1", zb_h1},
      {"interleaved-zb", interleaved_zb},
      {"zb-h2", zb_h2},
      {"zb-1p", zb_1p},
      {"zb-2p", zb_2p},
      {"zb-v", zb_v},
      {"dualpipe",
       [](const Sizes& s, const TimelineCosts& c, const Measured& got) { return overlapped(s.p / 2, c, got); }},
      {"dualpipev",
       [](const Sizes& s, const TimelineCosts& c, const Measured& got) { return overlapped(s.p, c, got); }},
      {"1f1b-v", one_f_one_b_v},
      {"v-half", v_half},
      {"v-min", v_min},
  };
  return all;
}

/// Makes it and checks all that holds for any timeline, then what is published about this one.
bool check(const TimelineInfo& info, const Sizes& s, const TimelineCosts& costs) {
  SCOPED_TRACE(fmt::format("{} p {} m {} v {}, F {} I {} W {}", info.name, s.p, s.m, s.v, costs.F, costs.I, costs.W));
  TimelineRequest request = {.ranks = s.p, .microbatches = s.m, .stages_per_rank = s.v};
  if (info.uses_costs && info.name != "zb-v") request.costs = costs;  // zb-v: its rule is the published one
  Result<Timeline> timeline = make_timeline(info.name, request, {});
  if (!timeline) {
    ADD_FAILURE() << render(timeline.error());
    return false;
  }
  Checked valid = validate(*timeline, {}, {stage_count(info.placement, s.p, s.v), s.m});
  if (!valid) {
    ADD_FAILURE() << render(valid.error());
    return false;
  }
  for (size_t rank = 0; rank < timeline->ranks.size(); ++rank)
    for (const TimelineCell& cell : timeline->ranks[rank])
      for (const auto& op : {std::optional(cell.first), cell.second})
        if (op && rank_of(info.placement, op->stage, s.p, direction_of(info.placement, op->microbatch, s.m)) !=
                      static_cast<int>(rank))
          ADD_FAILURE() << print(*op) << " on rank " << rank;
  return published().at(info.name)(s, costs, measure(*timeline, costs));
}

/// A legal size near the one given.
Sizes legal(const TimelineInfo& info, Sizes s) {
  if (!info.takes_stages_per_rank) s.v = info.default_stages_per_rank;
  if (info.name == "interleaved-1f1b") s.v = std::max(2, s.v);
  if (info.name == "dualpipe") s = {s.p + s.p % 2, s.m + s.m % 2, s.v};
  if (info.name == "dualpipe" || info.name == "dualpipev") s.m = std::max(s.m, 2 * s.p);
  return s;
}

class TimelineProperties : public testing::TestWithParam<std::string> {};

TEST_P(TimelineProperties, HundredsOfRandomSizes) {
  const TimelineInfo& info = *find_timeline(GetParam());
  Random random(7);
  int formulas = 0;
  for (int i = 0; i < 300; ++i) {
    Sizes s{random.between(1, 12), random.between(1, 40), random.between(1, 4)};
    if (i % 3 == 1) s.m = s.p * random.between(1, 5);  // many formulas want a multiple of the ranks
    const int w = random.between(1, 6);
    TimelineCosts costs{double(w + random.below(5)), double(random.between(1, 9)), double(w), 0};
    if (i % 2 == 0) costs = {1, 1, 1, 0};
    if (i % 4 == 1) costs.I = random.between(int(costs.W), int(costs.F));
    formulas += check(info, legal(info, s), costs);
  }
  EXPECT_GE(formulas, 30) << "too few sizes at which a formula holds";
}

TEST_P(TimelineProperties, LargeSizes) {
  const TimelineInfo& info = *find_timeline(GetParam());
  for (const Sizes& s : std::vector<Sizes>{{8, 64, 2}, {16, 128, 2}, {8, 256, 3}, {32, 33, 2}, {32, 256, 1}})
    check(info, legal(info, s), {1, 1, 1, 0});
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto& [name, check] : published()) out.push_back(name);
  return out;
}
std::string title(const testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  std::ranges::replace(out, '-', '_');
  return out;
}
INSTANTIATE_TEST_SUITE_P(Library, TimelineProperties, testing::ValuesIn(names()), title);

}  // namespace
}  // namespace piper
