// Updating weights and the norm of gradients: bytes per second, and that the time grows with the number of elements.
#include <benchmark/benchmark.h>

#include <vector>

#include "runtime/optimizer/optimizer.h"

namespace {

using namespace piper;

/// As the plan counts them: gradients are read, weights and state read and written.
int64_t moved_bytes(const ElementTypes& types, Optimizer kind, int64_t count) {
  return count * (bytes_of(types.gradients) + bytes_of(types.weights) * (types.master ? 1 : 2)) +
         2 * state_bytes(types, kind, count);
}

void update_weights(benchmark::State& state, Optimizer kind, const StepConfig& step) {
  const int64_t count = state.range(0);
  const ElementTypes types = element_types(step, step.weights);
  std::vector<std::byte> weights(static_cast<size_t>(count * bytes_of(types.weights)), std::byte{0x3C});
  std::vector<std::byte> gradients(static_cast<size_t>(count * bytes_of(types.gradients)), std::byte{0x3B});
  std::vector<std::byte> memory(static_cast<size_t>(state_bytes(types, kind, count)));
  initialize_state(types, kind, weights.data(), memory.data(), count);
  int64_t number = 0;
  for (auto _ : state)
    update({.kind = kind}, types, ++number, 0.5, weights.data(), gradients.data(), memory.data(), count);
  state.SetBytesProcessed(state.iterations() * moved_bytes(types, kind, count));
  state.SetItemsProcessed(state.iterations() * count);
  state.SetComplexityN(count);
}

StepConfig step_of(DType weights, std::optional<DType> master = {}) {
  StepConfig step;
  step.weights = weights;
  step.gradients = weights == DType::BFloat16 ? DType::Float32 : weights;
  step.master = master;
  return step;
}

#define SIZES Range(1 << 14, 1 << 24)->RangeMultiplier(32)->Complexity(benchmark::oN)->Unit(benchmark::kMicrosecond)
BENCHMARK_CAPTURE(update_weights, adamw_float32, Optimizer::AdamW, step_of(DType::Float32))->SIZES;
BENCHMARK_CAPTURE(update_weights, adamw_bfloat16_master, Optimizer::AdamW, step_of(DType::BFloat16, DType::Float32))
    ->SIZES;
BENCHMARK_CAPTURE(update_weights, adamw_float64, Optimizer::AdamW, step_of(DType::Float64))->SIZES;
BENCHMARK_CAPTURE(update_weights, momentum_float32, Optimizer::Momentum, step_of(DType::Float32))->SIZES;
BENCHMARK_CAPTURE(update_weights, sgd_float32, Optimizer::Sgd, step_of(DType::Float32))->SIZES;

void norm(benchmark::State& state, DType dtype) {
  const std::vector<std::byte> numbers(static_cast<size_t>(state.range(0) * bytes_of(dtype)), std::byte{0x3B});
  for (auto _ : state) benchmark::DoNotOptimize(sum_of_squares(dtype, numbers.data(), state.range(0)));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(numbers.size()));
  state.SetComplexityN(state.range(0));
}
BENCHMARK_CAPTURE(norm, float32, DType::Float32)->SIZES;
BENCHMARK_CAPTURE(norm, bfloat16, DType::BFloat16)->SIZES;

/// What memory can do here, to compare with.
void copy(benchmark::State& state) {
  const std::vector<std::byte> from(static_cast<size_t>(state.range(0)));
  std::vector<std::byte> to(from.size());
  for (auto _ : state) {
    std::copy(from.begin(), from.end(), to.begin());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(2 * state.iterations() * state.range(0));
}
BENCHMARK(copy)->Arg(1 << 16)->Arg(1 << 26)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
