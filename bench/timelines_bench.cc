// How long it takes to make timelines, and how that grows with ranks and microbatches.
//   timelines_bench                       the tables
//   timelines_bench --benchmark_filter=…  as Google Benchmark has it
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <ctime>
#include <map>
#include <string>
#include <tuple>

#include "timelines/clock.h"
#include "timelines/library.h"
#include "timelines/list.h"
#include "timelines/list_schedule.h"
#include "timelines/validate.h"

namespace {

using namespace piper;

struct Row {
  double seconds = 1e9;
  size_t passes = 0;
  double ratio = 0;  // makespan / lower bound; of list only
};
std::map<std::tuple<std::string, int, int>, Row> rows;  // by name, ranks and microbatches

size_t passes_of(const Timeline& timeline) {
  size_t count = 0;
  for (const auto& row : timeline.ranks)
    for (const TimelineCell& cell : row) count += cell.second ? 2 : 1;
  return count;
}

/// Of the processor: other programs do not count.
double seconds_since(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

Timeline make(const std::string& name, const TimelineRequest& request) {
  auto timeline = make_timeline(name, request, {});
  if (!timeline) {
    fmt::print(stderr, "{}", render(timeline.error()));
    std::exit(1);
  }
  return *std::move(timeline);
}

/// A timeline of the library, made and validated.
void bench_named(benchmark::State& state, const std::string& name) {
  TimelineRequest request{.ranks = static_cast<int>(state.range(0)), .microbatches = static_cast<int>(state.range(1))};
  if (find_timeline(name)->uses_costs) request.costs = TimelineCosts{10, 11, 7, 0.5};
  Row& row = rows[{name, request.ranks, request.microbatches}];
  for (auto _ : state) {
    const auto start = std::clock();
    const Timeline timeline = make(name, request);
    if (!validate(timeline, {})) state.SkipWithError("not valid");
    row.seconds = std::min(row.seconds, seconds_since(start));
    row.passes = passes_of(timeline);
  }
  state.counters["passes"] = static_cast<double>(row.passes);
}

/// The list scheduler, for a last stage that takes half as long again.
void bench_list(benchmark::State& state, const std::string& name, StagePlacement placement,
                double (*limit)(int ranks)) {
  TimelineRequest request{.ranks = static_cast<int>(state.range(0)),
                          .microbatches = static_cast<int>(state.range(1)),
                          .stages_per_rank = timelines::usual_stages_per_rank(placement),
                          .placement = placement};
  request.memory_limit = limit(request.ranks);
  TimelineCosts costs;
  costs.stages.assign(static_cast<size_t>(stage_count(placement, request.ranks, request.stages_per_rank)), {});
  costs.stages.back() = {1.5, 1.5, 1.5};
  request.costs = costs;
  Row& row = rows[{name, request.ranks, request.microbatches}];
  for (auto _ : state) {
    const auto start = std::clock();
    const timelines::ListSchedule found = list_schedule(timelines::list_problem(request));
    if (!validate(found.timeline, {})) state.SkipWithError("not valid");
    row.seconds = std::min(row.seconds, seconds_since(start));
    row.passes = passes_of(found.timeline);
    row.ratio = found.makespan / found.lower_bound;
  }
  state.counters["passes"] = static_cast<double>(row.passes);
  state.counters["ratio"] = row.ratio;
}

void add_benchmarks() {
  const auto sizes = [](benchmark::internal::Benchmark* bench) {
    bench->Args({8, 64})->Args({16, 128})->Args({32, 256})->Unit(benchmark::kMillisecond)->Iterations(3);
  };
  for (const TimelineInfo& info : timeline_library()) {
    if (info.takes_placement) continue;
    auto* bench = benchmark::RegisterBenchmark(
        info.name.c_str(), [name = info.name](benchmark::State& state) { bench_named(state, name); });
    sizes(bench);
    if (info.name == "dualpipev") bench->Args({64, 512});
  }
  struct List {
    std::string name;
    StagePlacement placement;
    double (*limit)(int ranks);
  };
  const List lists[] = {{"list line", StagePlacement::Line, [](int p) { return 1.0 * p; }},
                        {"list V", StagePlacement::V, [](int p) { return 2.0 * p; }},
                        {"list V, memory of v-half", StagePlacement::V, [](int p) { return 2.0 * (p / 2 + 1); }},
                        {"list W", StagePlacement::W, [](int p) { return 4.0 * p; }}};
  for (const List& list : lists) {
    auto* bench = benchmark::RegisterBenchmark(list.name.c_str(), [list](benchmark::State& state) {
      bench_list(state, list.name, list.placement, list.limit);
    });
    sizes(bench);
    bench->Args({64, 256})->Iterations(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  add_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  fmt::print("\n{:<24} {:>5} {:>12} {:>8} {:>9} {:>8} {:>8} {:>12}\n", "timeline", "ranks", "microbatches", "passes",
             "seconds", "growth", "of work", "to the bound");
  const Row* previous = nullptr;
  std::string before;
  for (const auto& [key, row] : rows) {
    const auto& [name, ranks, microbatches] = key;
    if (name != before) previous = nullptr;
    fmt::print(
        "{:<24} {:>5} {:>12} {:>8} {:>9.4f} {:>8} {:>8} {:>12}\n", name, ranks, microbatches, row.passes, row.seconds,
        previous ? fmt::format("{:.1f}x", row.seconds / previous->seconds) : "",
        previous ? fmt::format("{:.1f}x", static_cast<double>(row.passes) / static_cast<double>(previous->passes)) : "",
        row.ratio > 0 ? fmt::format("{:.3f}", row.ratio) : "");
    previous = &row;
    before = name;
  }
}
