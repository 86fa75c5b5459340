#include "runtime/cuda/optimizer.h"

#include <algorithm>
#include <utility>

#include "base/invariant.h"
#include "comm/gpu/check.h"
#include "runtime/cuda/element_array.cuh"
#include "runtime/optimizer/element_steps.h"

namespace piper::cuda {
namespace {

constexpr int threads = 256;
constexpr int most_blocks = 132 * 16;  // enough to fill every GPU; threads go on with what is left

/// The arrays of a range, of any types and anywhere.
struct AnyArrays {
  ElementArray weights, gradients, moments[2], master, master_gradients, ema;
  int kept = 0;  // moments
  double ema_weight = 0;
  bool rounds = false;  // moments at random
  RoundedElements rounded;
  int64_t update = 0;

  template <class T>
  __device__ void read(int64_t first, int n, T (&w)[together], T (&g)[together], T (&m)[2][together]) const {
    load(master.data ? master : weights, first, n, w);
    load(gradients, first, n, g);
#pragma unroll
    for (int k = 0; k < 2; ++k)
      if (k < kept) load(moments[k], first, n, m[k]);
  }
  template <class T>
  __device__ void round(int64_t first, int n, T (&g)[together]) const {
    if (!master_gradients.data) return;
    store(g, master_gradients, first, n);
    load(master_gradients, first, n, g);
  }
  template <class T>
  __device__ void write(int64_t first, int n, const T (&w)[together], T (&m)[2][together]) const {
    if (rounds) {
      uint32_t words[together];
      random_words(rounded, update, first, n, words);
#pragma unroll
      for (int i = 0; i < together; ++i)
        if (i < n) round_moments(m[0][i], m[1][i], words[i]);
    }
#pragma unroll
    for (int k = 0; k < 2; ++k)
      if (k < kept) store(m[k], moments[k], first, n);
    if (master.data) store(w, master, first, n);
    store(w, weights, first, n);
    if (!ema.data) return;
    T mean[together] = {};
    load(ema, first, n, mean);
#pragma unroll
    for (int i = 0; i < together; ++i) mean[i] += static_cast<T>(ema_weight) * (w[i] - mean[i]);
    store(mean, ema, first, n);
  }
};

/// What large models have: whole groups, two moments and a master copy, if there is one, in float32. All loads are on
/// their way before the first is needed.
template <class Weight, class Gradient>
struct UsualArrays {
  Weight* weights;
  const Gradient* gradients;
  float* moments[2];
  float* master;  // the weights themselves if they are float32

  __device__ void read(int64_t first, int, float (&w)[together], float (&g)[together], float (&m)[2][together]) const {
    load_group(master + first, w);
    load_group(gradients + first, g);
    load_group(moments[0] + first, m[0]);
    load_group(moments[1] + first, m[1]);
  }
  __device__ void round(int64_t, int, float (&)[together]) const {}
  __device__ void write(int64_t first, int, const float (&w)[together], float (&m)[2][together]) const {
    store_group(m[0], moments[0] + first);
    store_group(m[1], moments[1] + first);
    store_group(w, master + first);
    if constexpr (!std::is_same_v<Weight, float>) store_group(w, weights + first);
  }
};

AnyArrays arrays_of(const ElementTypes& types, int64_t kept, const ElementPlaces& at) {
  AnyArrays arrays;
  arrays.weights = element_array(types.weights, at.weights);
  arrays.gradients = element_array(types.gradients, at.gradients);
  for (int64_t k = 0; k < kept; ++k) arrays.moments[k] = element_array(types.moments, at.moments[k]);
  if (types.master) arrays.master = element_array(*types.master, at.master);
  if (types.master_gradients) arrays.master_gradients = element_array(*types.master_gradients, at.master_gradients);
  if (types.ema) arrays.ema = element_array(*types.ema, at.ema);
  arrays.kept = static_cast<int>(kept);
  return arrays;
}

bool is_usual(const AnyArrays& arrays, int64_t count) {
  const ElementArray& precise = arrays.master.data ? arrays.master : arrays.weights;
  return arrays.kept == 2 && !arrays.master_gradients.data && !arrays.ema.data && count % together == 0 &&
         precise.dtype == DType::Float32 && arrays.moments[0].dtype == DType::Float32 && precise.aligned &&
         arrays.weights.aligned && arrays.gradients.aligned && arrays.moments[0].aligned && arrays.moments[1].aligned;
}

/// Calls `use` with the arrays in their own types, if they are usual.
template <class Use>
bool with_usual(const AnyArrays& arrays, int64_t count, const Use& use) {
  if (!is_usual(arrays, count)) return false;
  const auto as = [&]<class Weight, class Gradient>(Weight* weights, const Gradient* gradients) {
    const auto floats = [](const ElementArray& x) { return reinterpret_cast<float*>(x.data); };
    use(UsualArrays<Weight, Gradient>{weights,
                                      gradients,
                                      {floats(arrays.moments[0]), floats(arrays.moments[1])},
                                      floats(arrays.master.data ? arrays.master : arrays.weights)});
    return true;
  };
  auto* const f32 = reinterpret_cast<float*>(arrays.weights.data);
  auto* const bf16 = reinterpret_cast<BFloat*>(arrays.weights.data);
  const auto* const f32_gradients = reinterpret_cast<const float*>(arrays.gradients.data);
  const auto* const bf16_gradients = reinterpret_cast<const BFloat*>(arrays.gradients.data);
  const std::pair types = {arrays.weights.dtype, arrays.gradients.dtype};
  if (types == std::pair{DType::Float32, DType::Float32}) return as(f32, f32_gradients);
  if (types == std::pair{DType::BFloat16, DType::Float32}) return as(bf16, f32_gradients);
  if (types == std::pair{DType::BFloat16, DType::BFloat16}) return as(bf16, bf16_gradients);
  return false;
}

int blocks_for(int64_t groups) {
  return static_cast<int>(std::clamp<int64_t>((groups + threads - 1) / threads, 1, most_blocks));
}

template <class T, class Step, class Arrays>
__global__ void update_elements(Step step, Arrays arrays, ScaleStep<T> scale, int64_t count) {
  const int64_t groups = (count + together - 1) / together;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t group = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; group < groups; group += stride) {
    const int64_t first = group * together;
    const int n = count - first < together ? static_cast<int>(count - first) : together;
    T w[together] = {}, g[together] = {}, m[2][together] = {};
    arrays.read(first, n, w, g, m);
#pragma unroll
    for (T& x : g) x = scale(x);
    arrays.round(first, n, g);
#pragma unroll
    for (int i = 0; i < together; ++i) step(w[i], g[i], m[0][i], m[1][i]);
    arrays.write(first, n, w, m);
  }
}

__global__ void convert_elements(ElementArray from, ElementArray to, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * together; first < count;
       first += stride * together) {
    const int n = count - first < together ? static_cast<int>(count - first) : together;
    double x[together];
    load(from, first, n, x);
    store(x, to, first, n);
  }
}

}  // namespace

void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                      int64_t count, cudaStream_t stream) {
  if (count == 0) return;
  const auto bytes = static_cast<size_t>(state_bytes(types, kind, count));
  if (bytes > 0) check_cuda(cudaMemsetAsync(state, 0, bytes, stream), "clear the state of the optimizer");
  if (!types.master && !types.ema) return;
  const ElementPlaces at = places_of(types, kind, nullptr, nullptr, state, count);
  const auto copy = [&](DType dtype, std::byte* to) {
    convert_elements<<<blocks_for(count / together + 1), threads, 0, stream>>>(element_array(types.weights, weights),
                                                                               element_array(dtype, to), count);
    check_cuda(cudaGetLastError(), "copy weights to what is kept of them");
  };
  if (types.master) copy(*types.master, at.master);
  if (types.ema) copy(*types.ema, at.ema);
}

void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step, const GradientScale& scale,
            std::byte* weights, const std::byte* gradients, std::byte* state, int64_t whole, ElementPart part,
            cudaStream_t stream) {
  invariant(step >= 1, "the steps of an optimizer count from 1");
  const int64_t count = part.end - part.begin;
  if (count == 0) return;
  const ElementPlaces at =
      places_from(places_of(types, settings.kind, weights, gradients, state, whole), types, part.begin);
  AnyArrays arrays = arrays_of(types, moments(settings.kind), at);
  arrays.ema_weight = 1 - settings.ema_decay;
  arrays.rounds = types.random_rounding;
  arrays.rounded = part.rounded;
  arrays.update = step;
  const int blocks = blocks_for(count / together + 1);
  const auto launch = [&]<class T>(const ScaleStep<T>& scaled, const auto& of) {
    with_step<T>(settings, step,
                 [&](const auto& one) { update_elements<T><<<blocks, threads, 0, stream>>>(one, of, scaled, count); });
  };
  if (types.arithmetic() == DType::Float64)
    launch(ScaleStep<double>(scale), arrays);
  else if (!with_usual(arrays, count, [&](const auto& usual) { launch(ScaleStep<float>(scale), usual); }))
    launch(ScaleStep<float>(scale), arrays);
  check_cuda(cudaGetLastError(), "update weights");
}

}  // namespace piper::cuda
