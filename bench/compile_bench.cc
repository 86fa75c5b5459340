// How long it takes from text to verified plans, and how that grows with microbatches and with devices.
//   compile_bench                       the table
//   compile_bench --benchmark_filter=…  as Google Benchmark has it
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <map>

#include "compile/compile.h"
#include "model/analytic/analytic_model.h"
#include "model/analytic/config_file.h"
#include "must.h"
#include "schedule/schedule_text.h"

namespace {

using namespace piper;

/// A mixture of experts of 64 layers; the batch is one sample per microbatch and device.
std::string model_text(int64_t batch) {
  return fmt::format(R"([model]
name = "bench-moe"
arch = "qwen3-moe"
hidden = 4096
layers = 64
heads = 64
kv_heads = 4
head_dim = 128
moe_ffn = 1536
experts = 256
top_k = 8
vocab = 151936
[step]
batch = {}
sequence = 4096
)",
                     batch);
}

/// DualPipeV over 16 ranks of two stages, ZeRO-1, experts inside each stage over 16 devices.
std::string schedule_text(int replicas, int microbatches) {
  return fmt::format(R"(mesh(pp=16, edp={}, ep=16)
split(batch, parts={}, as=mb)
place({{}}, along=pp, stages=32, shape=v, transfers=p2p)
replicate({{}}, along=[edp, ep], zero=1, bucket=100MB, gather_stream=dp, reduce_stream=dp)
shard({{experts=*}}, along=ep, stream=ep)
use dualpipev(stages=stage, microbatches=mb)
)",
                     replicas / 16, microbatches);
}

Compiled compile_once(int replicas, int microbatches) {
  const auto config = must(parse_config(make_source("bench.toml", model_text(int64_t{replicas} * microbatches))));
  auto model = must(analytic_model(config.model, resolve(config.step, config.model)));
  const auto schedule = must(parse_schedule(make_source("bench.piper", schedule_text(replicas, microbatches))));
  return must(compile(std::make_shared<const ModelGraph>(std::move(model)), schedule));
}

double resident_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

struct Row {
  double seconds = 0;
  size_t nodes = 0, operations = 0, templates = 0;
  double megabytes = 0;
};
std::map<std::pair<int, int>, Row> rows;  // (devices, microbatches)

void bench_compile(benchmark::State& state) {
  const int replicas = static_cast<int>(state.range(0)) / 16, microbatches = static_cast<int>(state.range(1));
  Row row;
  row.seconds = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    const Compiled compiled = compile_once(replicas, microbatches);
    row.seconds =
        std::min(row.seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    row.nodes = compiled.linear.dag.nodes.size();
    row.templates = compiled.plan.templates.size();
    row.operations = 0;
    for (const auto& t : compiled.plan.templates) row.operations += t.ops.size();
  }
  row.megabytes = resident_megabytes();
  state.counters["nodes"] = static_cast<double>(row.nodes);
  state.counters["MB"] = row.megabytes;
  rows[{static_cast<int>(state.range(0)), microbatches}] = row;
}
BENCHMARK(bench_compile)
    ->Args({4096, 32})
    ->Args({4096, 64})
    ->Args({4096, 128})
    ->Args({4096, 256})
    ->Args({65536, 128})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(3);

/// Without any order: every microbatch is ready at once, and the compiler must not mind.
void bench_unordered(benchmark::State& state) {
  const auto parts = state.range(0);
  const auto config = must(parse_config(make_source("bench.toml", model_text(parts))));
  const auto model =
      std::make_shared<const ModelGraph>(must(analytic_model(config.model, resolve(config.step, config.model))));
  const std::string text = fmt::format("devices(1)\nsplit(batch, parts={}, as=mb)\nplace({{}}, devices=[0])\n", parts);
  const Schedule schedule = must(parse_schedule(make_source("bench.piper", text)));
  for (auto _ : state) benchmark::DoNotOptimize(must(compile(model, schedule)));
  state.SetComplexityN(parts);
}
BENCHMARK(bench_unordered)
    ->RangeMultiplier(2)
    ->Range(64, 512)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(2)
    ->Complexity();

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  fmt::print("\n{:>8} {:>13} {:>8} {:>11} {:>10} {:>9} {:>9} {:>7}\n", "devices", "microbatches", "nodes", "operations",
             "templates", "seconds", "growth", "MB");
  double previous = 0;
  for (const auto& [key, row] : rows) {
    fmt::print("{:>8} {:>13} {:>8} {:>11} {:>10} {:>9.3f} {:>9} {:>7.0f}\n", key.first, key.second, row.nodes,
               row.operations, row.templates, row.seconds,
               previous > 0 ? fmt::format("{:.2f}x", row.seconds / previous) : "", row.megabytes);
    previous = key.first == 4096 ? row.seconds : 0;
  }
  if (rows.contains({4096, 128}) && rows.contains({65536, 128}))
    fmt::print("65,536 devices against 4,096: {:.2f}x\n", rows[{65536, 128}].seconds / rows[{4096, 128}].seconds);
}
