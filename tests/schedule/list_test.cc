// The list scheduler: valid and within its memory on any placement, never behind a published order, and as good as the
// reference values for uneven stages.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "property/random.h"
#include "timelines/clock.h"
#include "timelines/csv.h"
#include "timelines/list.h"
#include "timelines/list_schedule.h"
#include "timelines/validate.h"

namespace piper {
namespace {

using namespace timelines;

double makespan_of(const Timeline& timeline, const TimelineCosts& costs) {
  double longest = 0;
  for (const auto& row : run_clock(timeline, costs))
    if (!row.empty()) longest = std::max(longest, row.back().end);
  return longest;
}

/// Most activations on a rank; I frees a share of each, W or B the rest.
double peak_of(const Timeline& timeline, double freed_by_I = 0) {
  double most = 0;
  for (const auto& row : timeline.ranks) {
    double kept = 0;
    const auto count = [&](const TimelineOp& op) {
      if (op.pass == Pass::F) kept += 1;
      if (op.pass == Pass::B) kept -= 1;
      if (op.pass == Pass::BI) kept -= freed_by_I;
      if (op.pass == Pass::BW) kept -= 1 - freed_by_I;
      most = std::max(most, kept);
    };
    for (const TimelineCell& cell : row) {
      count(cell.first);
      if (cell.second) count(*cell.second);
    }
  }
  return most;
}

Timeline make(std::string_view name, const TimelineRequest& request) {
  Result<Timeline> timeline = make_timeline(name, request, {});
  if (!timeline) ADD_FAILURE() << name << ": " << render(timeline.error());
  return timeline ? *std::move(timeline) : Timeline{};
}

std::string refusal(std::string_view timeline, const TimelineRequest& request) {
  Result<Timeline> result = make_timeline(timeline, request, {});
  return result ? "accepted" : std::string(name(result.error().code)) + " " + render(result.error());
}

/// All that must hold for every problem; returns what was found.
ListSchedule check(const ListProblem& problem, const ListEffort& effort) {
  const ListSchedule found = list_schedule(problem, effort);
  Checked valid = validate(found.timeline, {}, {problem.stages(), problem.microbatches});
  EXPECT_TRUE(valid) << render(valid.error());
  EXPECT_LE(peak_of(found.timeline, problem.freed_by_I), problem.limit + 1e-9);
  EXPECT_NEAR(found.makespan, makespan_of(found.timeline, problem.costs), 1e-9 * found.makespan);
  EXPECT_GE(found.makespan, found.lower_bound * (1 - 1e-9));
  for (size_t rank = 0; rank < found.timeline.ranks.size(); ++rank)
    for (const TimelineCell& cell : found.timeline.ranks[rank]) {
      const int direction = problem.direction_of.empty() ? 0 : problem.direction_of[cell.first.microbatch];
      EXPECT_EQ(problem.rank_of[direction][cell.first.stage], static_cast<int>(rank));
      const bool whole = !problem.whole_backward.empty() && problem.whole_backward[cell.first.stage];
      EXPECT_EQ(whole && cell.first.pass != Pass::F, cell.first.pass == Pass::B);
    }
  return found;
}

// ---- reference values: the last stage takes 1.5 times as long ------------------------------------------------------

TimelineCosts long_last_stage(int stages) {
  TimelineCosts costs;
  costs.stages.assign(stages, {});
  costs.stages.back() = {1.5, 1.5, 1.5};
  return costs;
}

struct Size {
  int ranks, microbatches;
};
const std::vector<Size> reference_sizes = {{4, 16}, {4, 32}, {8, 16}, {8, 32}};

ListSchedule with_long_last_stage(StagePlacement placement, const Size& size, double limit) {
  TimelineRequest request{.ranks = size.ranks,
                          .microbatches = size.microbatches,
                          .stages_per_rank = placement == StagePlacement::Line ? 1 : 2,
                          .memory_limit = limit,
                          .placement = placement};
  request.costs = long_last_stage(stage_count(placement, size.ranks, request.stages_per_rank));
  return check(list_problem(request), {});
}

/// The limit of a row of the table, and the makespan to reach for each size.
struct Reference {
  StagePlacement placement;
  double (*limit)(int ranks);
  std::vector<double> reached;
};
double p(int ranks) {
  return ranks;
}
double two_p(int ranks) {
  return 2 * ranks;
}
double two_p_and_one(int ranks) {
  return 2 * ranks + 1;
}
double v_half_peak(int ranks) {
  return 2 * (ranks / 2 + 1);
}
double v_min_peak(int ranks) {
  return 2 * ((ranks + 1) / 3 + 1);
}

TEST(ListReference, LowerBoundWhereItCanBeReached) {
  const std::vector<Reference> rows = {{StagePlacement::Line, p, {75, 147, 79, 151}},
                                       {StagePlacement::Loop, two_p, {123, 243, 127, 247}},
                                       {StagePlacement::V, two_p_and_one, {120, 240, 120, 240}},
                                       {StagePlacement::V, two_p, {120, 240, 120, 240}}};
  for (const Reference& row : rows)
    for (size_t i = 0; i < reference_sizes.size(); ++i) {
      const Size& size = reference_sizes[i];
      const ListSchedule found = with_long_last_stage(row.placement, size, row.limit(size.ranks));
      EXPECT_DOUBLE_EQ(found.makespan, row.reached[i]) << name(row.placement) << " " << size.ranks;
      EXPECT_DOUBLE_EQ(found.lower_bound, row.reached[i]);
    }
}

TEST(ListReference, LowMemoryOnAV) {
  const std::vector<Reference> rows = {{StagePlacement::V, v_half_peak, {122, 242, 126, 246}},
                                       {StagePlacement::V, v_min_peak, {126.5, 248, 136, 257}}};
  for (const Reference& row : rows)
    for (size_t i = 0; i < reference_sizes.size(); ++i) {
      const Size& size = reference_sizes[i];
      if (property::sanitized && size.microbatches > 16) continue;  // takes minutes there
      const double limit = row.limit(size.ranks);
      const ListSchedule found = with_long_last_stage(row.placement, size, limit);
      EXPECT_LE(found.makespan, row.reached[i]) << size.ranks << " " << size.microbatches;
      if (row.limit != v_half_peak) continue;
      for (const std::string name : {"zb-v", "dualpipev", "1f1b-v", "v-half", "v-min"}) {
        TimelineRequest request{.ranks = size.ranks, .microbatches = size.microbatches};
        request.costs = long_last_stage(2 * size.ranks);
        const Timeline named = make(name, request);
        if (peak_of(named) > limit) continue;
        EXPECT_LT(found.makespan, makespan_of(named, *request.costs)) << name;
      }
    }
}

// ---- properties ----------------------------------------------------------------------------------------------------

/// Numbers the ranks that some microbatch meets, without gaps.
void leave_out_idle_ranks(ListProblem& problem) {
  std::vector<int> number(static_cast<size_t>(problem.ranks), -1);
  problem.ranks = 0;
  for (const int direction : problem.direction_of)
    for (const int rank : problem.rank_of[static_cast<size_t>(direction)])
      if (int& n = number[static_cast<size_t>(rank)]; n < 0) n = problem.ranks++;
  for (std::vector<int>& way : problem.rank_of)
    for (int& rank : way) rank = std::max(0, number[static_cast<size_t>(rank)]);
}

ListProblem random_problem(uint64_t seed) {
  property::Random random(seed);
  const auto cost = [&] { return random.percent(10) ? 0 : random.between(1, 20) * 0.3; };
  ListProblem problem;
  problem.ranks = random.between(1, 6);
  problem.microbatches = random.between(1, 12);
  const int stages = random.between(1, 10), directions = random.between(1, 2);
  for (int d = 0; d < directions; ++d) {
    std::vector<int>& way = problem.rank_of.emplace_back();
    for (int s = 0; s < stages; ++s) way.push_back(random.below(problem.ranks));
  }
  for (int m = 0; m < problem.microbatches; ++m) problem.direction_of.push_back(random.below(directions));
  leave_out_idle_ranks(problem);
  for (int s = 0; s < stages; ++s) problem.costs.stages.push_back({cost(), cost(), cost()});
  problem.costs.comm = random.below(3) * 0.4;
  if (random.percent(50))
    for (int s = 0; s < stages; ++s) problem.whole_backward.push_back(random.percent(50));
  problem.freed_by_I = random.below(3) * 0.5;
  problem.limit = least_limit(problem) + random.below(5) * 0.75;
  return problem;
}

TEST(ListProperties, AnyPlacementCostAndLimit) {
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(property::cases(400, 10000)); ++seed) {
    SCOPED_TRACE(seed);
    const ListProblem problem = random_problem(seed);
    const ListEffort little{.visits_per_pass = 500};
    const ListSchedule found = check(problem, little);
    EXPECT_EQ(found.timeline, list_schedule(problem, little).timeline);
    if (HasFailure()) return;
  }
}

TEST(ListProperties, NeverBehindTheLibrary) {
  property::Random random(7);
  for (int i = 0; i < property::cases(60, 60); ++i) {
    const StagePlacement placement = random.pick<StagePlacement>(
        {StagePlacement::Line, StagePlacement::Loop, StagePlacement::V, StagePlacement::TwoWay});
    TimelineRequest request{.ranks = 2 * random.between(1, 3),
                            .microbatches = 2 * random.between(1, 8),
                            .stages_per_rank = usual_stages_per_rank(placement)};
    TimelineCosts costs{.comm = 0.25 * random.below(3)};
    for (int s = 0; s < stage_count(placement, request.ranks, request.stages_per_rank); ++s)
      costs.stages.push_back({1.0 + 0.25 * random.below(4), 1, 0.5 + 0.5 * random.below(2)});
    request.costs = costs;
    for (const TimelineInfo& info : timeline_library()) {
      if (info.takes_placement || info.placement != placement) continue;
      const Result<Timeline> named = make_timeline(info.name, request, {});
      if (!named) continue;  // not defined for this size
      TimelineRequest list = request;
      list.placement = placement;
      list.memory_limit = peak_of(*named);
      const ListSchedule found = check(list_problem(list), {.visits_per_pass = 500});
      EXPECT_LE(found.makespan, makespan_of(*named, costs) * (1 + 1e-12)) << info.name;
    }
  }
}

// ---- every published order -----------------------------------------------------------------------------------------

const std::filesystem::path published_orders = std::filesystem::path(PIPER_SOURCE_DIR) / "../shared/oracles/schedules";

std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> all;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) all.push_back(cell);
  return all;
}

std::vector<std::map<std::string, std::string>> read_table(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> header = cells(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> row = cells(line);
    auto& named = rows.emplace_back();
    for (size_t c = 0; c < std::min(header.size(), row.size()); ++c) named[header[c]] = row[c];
  }
  return rows;
}

StagePlacement placement_of(const Timeline& timeline, int ranks, int per_rank, int microbatches) {
  for (const StagePlacement placement :
       {StagePlacement::Line, StagePlacement::V, StagePlacement::Loop, StagePlacement::TwoWay}) {
    bool same = true;
    for (size_t rank = 0; rank < timeline.ranks.size(); ++rank)
      for (const TimelineCell& cell : timeline.ranks[rank])
        same = same && cell.first.stage < stage_count(placement, ranks, per_rank) &&
               rank_of(placement, cell.first.stage, ranks,
                       direction_of(placement, cell.first.microbatch, microbatches)) == static_cast<int>(rank);
    if (same && (placement != StagePlacement::Line || per_rank == 1)) return placement;
  }
  ADD_FAILURE() << "no placement";
  return StagePlacement::Line;
}

/// With its own memory as the limit. PIPER_LONG=1: the search as users have it, which takes longer.
TEST(ListOracles, NeverBehindAPublishedOrder) {
  if (!std::filesystem::exists(published_orders)) GTEST_SKIP() << "no published orders beside the project";
  const ListEffort effort = property::long_run() ? ListEffort{} : ListEffort{.visits_per_pass = 200};
  int better = 0, total = 0;
  for (auto& row : read_table(published_orders / "makespan.csv")) {
    SCOPED_TRACE(row.at("file") + " " + row.at("cost"));
    std::ifstream file(published_orders / row.at("file"));
    std::ostringstream text;
    text << file.rdbuf();
    Result<Timeline> published = parse_csv(make_source(row.at("file"), text.str()));
    ASSERT_TRUE(published) << render(published.error());
    const auto number = [&](const char* key) { return std::stod(row.at(key)); };
    TimelineRequest request{.ranks = std::stoi(row.at("ranks")),
                            .microbatches = std::stoi(row.at("microbatches")),
                            .stages_per_rank = std::stoi(row.at("stages_per_rank"))};
    request.costs = TimelineCosts{number("T_F"), number("T_I"), number("T_W"), number("T_comm")};
    request.placement = placement_of(*published, request.ranks, request.stages_per_rank, request.microbatches);
    request.memory_limit = peak_of(*published);
    const ListSchedule found = check(list_problem(request), effort);
    const double theirs = makespan_of(*published, *request.costs);  // a pair takes the sum of its parts
    EXPECT_LE(found.makespan, theirs * (1 + 1e-12));
    better += found.makespan < theirs * (1 - 1e-9);
    ++total;
  }
  EXPECT_EQ(total, 332);
  std::cout << "  shorter than the published order in " << better << " of " << total << " cases\n";
}

// ---- options and refusals ------------------------------------------------------------------------------------------

TEST(ListOptions, DefaultPlacementFollowsStagesPerRank) {
  const auto stage_of_rank_1 = [](int per_rank, std::optional<StagePlacement> placement = {}) {
    const Timeline timeline =
        make("list", {.ranks = 2, .microbatches = 2, .stages_per_rank = per_rank, .placement = placement});
    std::set<int> stages;
    for (const TimelineCell& cell : timeline.ranks[1]) stages.insert(cell.first.stage);
    return stages;
  };
  EXPECT_EQ(stage_of_rank_1(0), (std::set{1}));
  EXPECT_EQ(stage_of_rank_1(2), (std::set{1, 2}));
  EXPECT_EQ(stage_of_rank_1(3), (std::set{1, 3, 5}));
  EXPECT_EQ(stage_of_rank_1(3, StagePlacement::W), (std::set{1, 2, 5}));
  EXPECT_EQ(stage_of_rank_1(0, StagePlacement::W), (std::set{1, 2, 5, 6}));
  EXPECT_EQ(stage_of_rank_1(0, StagePlacement::TwoWay), (std::set{0, 1}));
}

TEST(ListOptions, WholeBackwards) {
  const Timeline timeline = make("list", {.ranks = 4, .microbatches = 8, .backward = Backward::Whole});
  EXPECT_EQ(makespan_of(timeline, {}), makespan_of(make("1f1b", {.ranks = 4, .microbatches = 8}), {}));
  for (const auto& row : timeline.ranks)
    for (const TimelineCell& cell : row) EXPECT_TRUE(cell.first.pass == Pass::F || cell.first.pass == Pass::B);
}

TEST(ListOptions, Refusals) {
  const auto expect = [](std::string_view name, const TimelineRequest& request, std::string_view part) {
    const std::string text = refusal(name, request);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect("list", {.ranks = 4, .microbatches = 8, .stages_per_rank = 3, .placement = StagePlacement::V},
         "placement v has 2 stages per rank, not 3");
  expect("list", {.ranks = 3, .microbatches = 8, .placement = StagePlacement::TwoWay},
         "use 4 ranks and 8 microbatches");
  expect("list", {.ranks = 4, .microbatches = 8, .stages_per_rank = 2, .memory_limit = 1}, "a limit of 2 or more");
  expect("list", {.ranks = 4096, .microbatches = 4096}, "E113");
  expect("list", {.ranks = 4, .microbatches = 8, .group = 2}, "no groups");
  expect("1f1b", {.ranks = 4, .microbatches = 8, .placement = StagePlacement::V}, "its own placement, line");
  expect("1f1b", {.ranks = 4, .microbatches = 8, .backward = Backward::Whole}, "says itself which backwards");
  for (const std::string name : {"list", "zb-1p", "1f1b"})
    expect(name, {.ranks = 4, .microbatches = 8, .costs = TimelineCosts{.stages = {{}, {}, {}}}},
           "costs of 3 stages are given; there are 4");
  expect("zb-v", {.ranks = 4, .microbatches = 8, .costs = long_last_stage(4)}, "give 8 values");
}

/// The published heuristics are defined for stages that differ, too.
TEST(ListOptions, OtherTimelinesTakeCostsByStage) {
  for (const int ranks : {1, 3, 4})
    for (const std::string name : {"zb-1p", "zb-2p", "zb-v"}) {
      TimelineRequest request{.ranks = ranks, .microbatches = 9};
      const int stages = name == "zb-v" ? 2 * ranks : ranks;
      TimelineCosts even{2, 1.5, 1, 0.5}, by_stage = even;
      by_stage.stages.assign(stages, {2, 1.5, 1});
      request.costs = even;
      const Timeline expected = make(name, request);
      request.costs = by_stage;
      EXPECT_EQ(make(name, request), expected) << "costs by stage that are alike";
      EXPECT_EQ(makespan_of(expected, even), makespan_of(expected, by_stage));
      request.costs = long_last_stage(stages);
      EXPECT_TRUE(validate(make(name, request), {}, {stages, 9}));
      property::Random random(static_cast<uint64_t>(ranks));
      for (int i = 0; i < 200; ++i) {
        for (StageCosts& stage : request.costs->stages)
          stage = {0.5 * random.below(8), 0.5 * random.below(8), 0.5 * random.below(8)};
        EXPECT_TRUE(validate(make(name, request), {}, {stages, 9})) << name << " " << i;
      }
    }
}

}  // namespace
}  // namespace piper
