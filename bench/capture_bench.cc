// What capture costs for each operator, and replay compared with eager autograd, on models so small that only the host
// counts.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <benchmark/benchmark.h>

#include <map>

#include "capture/step.h"
#include "capture/zoo.h"

namespace {

using namespace piper;

zoo::Config config(bool mixture, int64_t layers = 4) {
  zoo::Config out;
  out.layers = layers;
  if (mixture) out.mixture = zoo::Mixture::IndexAdd;
  return out;
}

double calls_of(const CapturedModel& captured, std::initializer_list<Pass> passes) {
  double calls = 0;
  for (const ChunkBodies& chunk : captured.slices()[0].chunks)
    for (const Pass pass : passes)
      if (const ChunkIr* body = chunk.find(pass)) calls += static_cast<double>(body->calls.size());
  return calls;
}

void per_operator(benchmark::State& state, double calls) {
  state.counters["operators"] = calls;
  state.counters["per_operator"] =
      benchmark::Counter(calls, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

/// Recording alone, then everything up to the graph, without measuring operators.
void record_model(benchmark::State& state) {
  MetaModel meta;
  if (!build_on_meta([&] { meta = zoo::make(config(state.range(0), state.range(1))); }))
    return state.SkipWithError("refused");
  const auto options = at::TensorOptions(c10::kMeta).dtype(c10::ScalarType::Long);
  double calls = 0;
  for (auto _ : state) {
    auto recording = record(meta, {{"tokens", at::empty({2, 8}, options)}, {"targets", at::empty({2, 8}, options)}});
    calls = static_cast<double>(recording->graph.calls.size());
  }
  per_operator(state, calls);
}

void capture_model(benchmark::State& state) {
  MetaModel meta;
  if (!build_on_meta([&] { meta = zoo::make(config(state.range(0), state.range(1))); }))
    return state.SkipWithError("refused");
  CaptureOptions options = zoo::options(config(state.range(0), state.range(1)), {2, 4});
  options.measure_operators = false;
  double calls = 0;
  for (auto _ : state) {
    meta.recordings = std::make_shared<Recordings>();  // nothing is known of it yet
    auto captured = capture(meta, options);
    calls = 2 * static_cast<double>(captured->slices()[0].operators.calls.size());
  }
  per_operator(state, calls);
}

/// All programs of a step, made once.
struct Programs {
  explicit Programs(const zoo::Config& config)
      : weights(zoo::make(config)), captured(zoo::captured(config)), inputs(zoo::batch(config, 2)) {
    const ModelGraph& graph = *captured.graph();
    for (const NamedTensor& parameter : weights.parameters) tensors[parameter.name] = parameter.tensor.detach();
    for (const NamedTensor& buffer : weights.buffers) tensors[buffer.name] = buffer.tensor;
    for (const NamedTensor& parameter : weights.parameters)
      gradients[parameter.name] = at::zeros_like(parameter.tensor.detach());
    size_t input = 0;
    values.resize(graph.values.size());
    for (size_t v = 0; v < graph.values.size(); ++v)
      if (graph.values[v].kind == ValueKind::Input) values[v] = inputs[input++];
    for (size_t c = 0; c < graph.chunks.size(); ++c) add(ChunkId(c), Pass::F);
    for (size_t c = graph.chunks.size(); c-- > 0;)
      if (graph.chunks[c].find(Pass::B)) add(ChunkId(c), Pass::B);
  }
  struct Pass_ {
    const PassWork* work;
    ChunkRunner runner;
    std::vector<at::Tensor> reads, parameters, states, gradients, writes;
  };
  void add(ChunkId chunk, Pass pass) {
    const ModelGraph& graph = *captured.graph();
    Pass_ one{graph[chunk].find(pass), ChunkRunner(*captured.program(chunk, pass, 2)), {}, {}, {}, {}, {}};
    one.reads.resize(one.work->reads.size());
    for (const ParameterId id : one.work->parameters) one.parameters.push_back(tensors.at(graph[id].name));
    for (const ParameterId id : one.work->gradients) one.gradients.push_back(gradients.at(graph[id].name));
    for (const std::string& name : captured.states(chunk, pass)) one.states.push_back(tensors.at(name));
    passes.push_back(std::move(one));
  }
  void run() {
    for (Pass_& pass : passes) {
      for (size_t i = 0; i < pass.reads.size(); ++i) pass.reads[i] = values[pass.work->reads[i].index()];
      pass.runner.run({pass.reads, pass.parameters, pass.states, pass.gradients, pass.writes, {1, 0}});
      for (size_t i = 0; i < pass.writes.size(); ++i) values[pass.work->writes[i].index()] = std::move(pass.writes[i]);
    }
  }
  MetaModel weights;
  CapturedModel captured;
  std::vector<at::Tensor> inputs, values;
  std::map<std::string, at::Tensor> tensors, gradients;
  std::vector<Pass_> passes;
};

void replay_step(benchmark::State& state) {
  at::set_num_threads(1);
  Programs programs(config(state.range(0)));
  for (auto _ : state) programs.run();
  per_operator(state, calls_of(programs.captured, {Pass::F, Pass::B}));
}

void eager_step_(benchmark::State& state) {
  at::set_num_threads(1);
  const MetaModel model = zoo::make(config(state.range(0)));
  const auto inputs = zoo::batch(config(state.range(0)), 2);
  for (auto _ : state) benchmark::DoNotOptimize(eager_step(model, inputs, {1, 0}));
}

BENCHMARK(record_model)
    ->ArgNames({"mixture", "layers"})
    ->ArgsProduct({{0, 1}, {4, 8, 32}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(capture_model)
    ->ArgNames({"mixture", "layers"})
    ->ArgsProduct({{0, 1}, {4, 8, 32}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(replay_step)->ArgName("mixture")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(eager_step_)->ArgName("mixture")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
