// Operations per second of the simulator, with and without shared links, and how its time grows.
//   sim_bench                       the table
//   sim_bench --benchmark_filter=…  as Google Benchmark has it
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>

#include "compile/compile.h"
#include "cost/load_cluster.h"
#include "model/load_model.h"
#include "must.h"
#include "schedule/schedule_text.h"
#include "sim/step_report.h"

namespace {

using namespace piper;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double resident_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// DualPipe over 16 ranks, ZeRO-1 over 128 replicas, experts over 64 of them.
std::string deepseek_schedule(int microbatches) {
  return fmt::format(R"(mesh(pp=16, edp=2, ep=64)
split(batch, parts={}, as=mb)
place({{}}, along=pp, stages=16, shape=two_way, transfers=p2p)
replicate({{}}, along=[edp, ep], zero=1, bucket=100MB, gather_stream=dp, reduce_stream=dp)
shard({{experts=*}}, along=ep, stream=ep)
use dualpipe(stages=stage, microbatches=mb)
)",
                     microbatches);
}

Compiled compile_deepseek(int microbatches, const Cluster& cluster) {
  StepOverrides step;
  step.batch = int64_t{128} * microbatches;
  auto model = std::make_shared<const ModelGraph>(must(load_model("analytic:DeepSeek-V3", step)));
  CompileOptions options;
  options.cluster = cluster;
  for (DeviceKind& kind : options.cluster.kinds) kind.memory.reset();
  return must(
      compile(model, must(parse_schedule(make_source("bench.piper", deepseek_schedule(microbatches)))), options));
}

struct Row {
  std::string what;
  int microbatches = 0;
  size_t operations = 0;
  double seconds = 0;
};
std::vector<Row> rows;

void bench_simulate(benchmark::State& state) {
  const int microbatches = static_cast<int>(state.range(0));
  const bool shared = state.range(1) != 0, all = state.range(2) != 0;
  const Cluster cluster = must(load_cluster("h100"));
  const Compiled compiled = compile_deepseek(microbatches, cluster);
  Row row{fmt::format("{}, {}", shared ? "shared links" : "free links", all ? "all devices" : "one of each kind"),
          microbatches, 0, 1e9};
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    const Simulation simulation = must(simulate(compiled.plan, cluster, nullptr, {all, shared}));
    row.seconds = std::min(row.seconds, seconds_since(start));
    row.operations = simulation.times.end.size();
  }
  state.counters["operations/s"] = static_cast<double>(row.operations) / row.seconds;
  rows.push_back(row);
}
BENCHMARK(bench_simulate)
    ->ArgsProduct({{60, 120, 240}, {0, 1}, {0}})
    ->Args({32, 0, 1})
    ->Args({32, 1, 1})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(2);

void bench_model_to_report(benchmark::State& state) {
  for (auto _ : state) {
    const Cluster cluster = must(load_cluster("h100"));
    const Compiled compiled = compile_deepseek(120, cluster);
    const Simulation simulation = must(simulate(compiled.plan, cluster));
    benchmark::DoNotOptimize(step_report(*compiled.linear.dag.model, compiled.plan, cluster, simulation));
  }
  state.counters["MB"] = resident_megabytes();
}
BENCHMARK(bench_model_to_report)->Unit(benchmark::kMillisecond)->Iterations(2);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  fmt::print("\nDeepSeek-V3 on 2,048 devices\n{:<36} {:>13} {:>11} {:>9} {:>14} {:>8}\n", "", "microbatches",
             "operations", "seconds", "operations/s", "growth");
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const auto half = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
      return other.what == row.what && other.microbatches * 2 == row.microbatches;
    });
    fmt::print("{:<36} {:>13} {:>11} {:>9.3f} {:>14.0f} {:>8}\n", row.what, row.microbatches, row.operations,
               row.seconds, static_cast<double>(row.operations) / row.seconds,
               half != rows.end() ? fmt::format("{:.2f}x", row.seconds / half->seconds) : "");
  }
}
