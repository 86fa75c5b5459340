// Writing and reading traces: seconds and bytes for 100,000 and for 1,000,000 operations.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>

#include "trace/chrome.h"

namespace {

/// 64 devices that compute and send in turn, with two buffers for every operation.
piper::Trace trace_of(int events) {
  piper::Trace trace;
  trace.lanes.resize(64);
  for (int lane = 0; lane < 64; ++lane) trace.lanes[static_cast<size_t>(lane)] = {lane};
  trace.streams = {"compute", "p2p.send"};
  trace.categories = {"activations"};
  trace.origins = {{"s.piper:3", "place({}, devices=[0])"}};
  for (int i = 0; i < events; ++i) {
    const int lane = i % 64, op = i / 64;
    piper::TraceEvent event;
    event.lane = lane;
    event.op = op;
    event.stream = op % 2;
    event.name = fmt::format("layer.{}.attention F mb={}", op % 8, op / 8);
    event.kind = op % 2 ? "send" : "run";
    event.pass = "F";
    event.slice = op / 8;
    event.start = op / 3.0 * 1e-3;
    event.end = (op + 1) / 3.0 * 1e-3;
    event.bytes = op % 2 ? 1 << 20 : 0;
    event.origin = 0;
    if (op > 0) event.waits = {op - 1}, event.cause = {lane, op - 1};
    trace.events.push_back(std::move(event));
    for (const char* what : {"saved", "out"})
      trace.buffers.push_back({lane, fmt::format("layer.{}.attention.{} F mb={}", op % 8, what, op / 8), 0, 1 << 26, op,
                               std::min(op + 40, (events - 1 - lane) / 64)});
  }
  trace.seconds = trace.events.back().end;
  return trace;
}

void write_trace(benchmark::State& state) {
  const piper::Trace trace = trace_of(static_cast<int>(state.range(0)));
  size_t bytes = 0;
  for (auto _ : state) bytes = piper::print_chrome(trace).size();
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(write_trace)->Arg(100'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void read_trace(benchmark::State& state) {
  const auto file = piper::make_source("t", piper::print_chrome(trace_of(static_cast<int>(state.range(0)))));
  for (auto _ : state) {
    auto trace = piper::parse_chrome(file);
    if (!trace) state.SkipWithError(piper::render(trace.error()).c_str());
    benchmark::DoNotOptimize(trace);
  }
}
BENCHMARK(read_trace)->Arg(100'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
