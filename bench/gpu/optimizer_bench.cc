// Traffic of the optimizer on a GPU, beside a plain copy: 2^30 elements, or as many as the argument says.
//   gpu_optimizer_bench [ELEMENTS]
#include <algorithm>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "comm/gpu/check.h"
#include "runtime/cuda/optimizer.h"

namespace {

using namespace piper;

struct GpuArray {
  explicit GpuArray(int64_t bytes) {
    check_cuda(cudaMalloc(&data, static_cast<size_t>(bytes)), "take memory of the GPU");
    check_cuda(cudaMemset(data, 0, static_cast<size_t>(bytes)), "clear memory of the GPU");
  }
  ~GpuArray() { cudaFree(data); }
  std::byte* at() const { return static_cast<std::byte*>(data); }
  void* data = nullptr;
};

/// Milliseconds of one call, many times.
template <class Call>
void measure(const char* name, double bytes, const Call& call) {
  cudaEvent_t begin, end;
  check_cuda(cudaEventCreate(&begin), "make an event");
  check_cuda(cudaEventCreate(&end), "make an event");
  std::vector<float> times;
  for (int i = 0; i < 12; ++i) {
    check_cuda(cudaEventRecord(begin), "record an event");
    call();
    check_cuda(cudaEventRecord(end), "record an event");
    check_cuda(cudaEventSynchronize(end), "wait for an event");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "measure");
    if (i >= 2) times.push_back(ms);
  }
  std::ranges::sort(times);
  const double median = times[times.size() / 2];
  fmt::print("{:<44} {:>8.2f} ms ({:.2f} .. {:.2f}) {:>7.2f} TB/s\n", name, median, times.front(), times.back(),
             bytes / median / 1e9);
}

void measure_update(const char* name, Optimizer kind, const ElementTypes& types, int64_t count) {
  OptimizerSettings settings;
  settings.kind = kind;
  const GpuArray weights(count * bytes_of(types.weights)), gradients(count * bytes_of(types.gradients));
  const GpuArray state(std::max<int64_t>(state_bytes(types, kind, count), 1));
  cuda::initialize_state(types, kind, weights.at(), state.at(), count, nullptr);
  const int64_t state_traffic = 2 * state_bytes(types, kind, count);
  const int64_t weight_traffic = count * bytes_of(types.weights) * (types.master ? 1 : 2);
  measure(name, static_cast<double>(state_traffic + weight_traffic + count * bytes_of(types.gradients)), [&] {
    cuda::update(settings, types, 1, {}, weights.at(), gradients.at(), state.at(), count, {0, count}, nullptr);
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (int devices = 0; cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    fmt::print("gpu_optimizer_bench: skipped, there is no GPU here\n");
    return 0;
  }
  const int64_t count = argc > 1 ? std::atoll(argv[1]) : int64_t{1} << 30;
  {
    const GpuArray a(count * 4), b(count * 4);
    measure("copy of float32", 8.0 * static_cast<double>(count), [&] {
      check_cuda(cudaMemcpyAsync(b.data, a.data, static_cast<size_t>(count) * 4, cudaMemcpyDeviceToDevice), "copy");
    });
  }
  const DType f32 = DType::Float32, bf16 = DType::BFloat16;
  measure_update("adamw, float32", Optimizer::AdamW, {f32, f32, std::nullopt, f32, std::nullopt}, count);
  measure_update("adamw, bf16 weights and gradients, f32 master", Optimizer::AdamW,
                 {bf16, bf16, f32, f32, std::nullopt}, count);
  measure_update("adamw, bf16 weights, f32 gradients, master", Optimizer::AdamW, {bf16, f32, f32, f32, std::nullopt},
                 count);
  measure_update("momentum, float32", Optimizer::Momentum, {f32, f32, std::nullopt, f32, std::nullopt}, count);
  const GpuArray numbers(count * 4), result(sizeof(double)), scratch(cuda::sum_of_squares_scratch(count));
  for (const DType dtype : {f32, bf16})
    measure(dtype == f32 ? "sum of squares, float32" : "sum of squares, bf16",
            static_cast<double>(count * bytes_of(dtype)), [&] {
              cuda::sum_of_squares(dtype, numbers.at(), count, reinterpret_cast<double*>(result.at()), scratch.at(),
                                   nullptr);
            });
}
