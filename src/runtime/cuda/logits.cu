#include "base/invariant.h"
#include "comm/gpu/check.h"
#include "runtime/cuda/logits.h"
#include "runtime/cuda/element_array.cuh"

namespace piper::cuda {
namespace {

constexpr int threads = 512;  // of a block, which does a row

/// sum * exp(most): a sum of powers that does not overflow.
template <class Wide>
struct Powers {
  Wide most, sum;
};
template <class Wide>
__device__ Powers<Wide> join(const Powers<Wide>& a, const Powers<Wide>& b) {
  if (a.sum == 0) return b;
  if (b.sum == 0) return a;
  const Wide most = max(a.most, b.most);
  return {most, a.sum * exp(a.most - most) + b.sum * exp(b.most - most)};
}

template <class Wide, class Element>
__global__ void sum_powers(const Element* logits, int64_t columns, Wide* out) {
  const Element* const row = logits + static_cast<int64_t>(blockIdx.x) * columns;
  const bool aligned = reinterpret_cast<uintptr_t>(row) % sizeof(Group<Element>) == 0;
  const int64_t grouped = aligned ? columns / together * together : 0;
  Powers<Wide> mine{0, 0};
  for (int64_t c = static_cast<int64_t>(threadIdx.x) * together; c < grouped; c += threads * together) {
    const Group<Element> group = *reinterpret_cast<const Group<Element>*>(row + c);
    Wide x[together], most = widen<Wide>(group.at[0]), sum = 0;
#pragma unroll
    for (int i = 0; i < together; ++i) {
      x[i] = widen<Wide>(group.at[i]);
      most = max(most, x[i]);
    }
#pragma unroll
    for (int i = 0; i < together; ++i) sum += exp(x[i] - most);
    mine = join(mine, Powers<Wide>{most, sum});
  }
  for (int64_t c = grouped + threadIdx.x; c < columns; c += threads)
    mine = join(mine, Powers<Wide>{widen<Wide>(row[c]), 1});
  __shared__ Powers<Wide> all[threads];
  all[threadIdx.x] = mine;
  for (int half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) all[threadIdx.x] = join(all[threadIdx.x], all[threadIdx.x + half]);
  }
  if (threadIdx.x == 0) out[blockIdx.x] = all[0].most + log(all[0].sum);
}

template <class Wide, class Element>
__global__ void make_gradient(Element* logits, int64_t columns, const Wide* logsumexp, const int64_t* targets,
                              const Wide* gradient, int64_t first) {
  Element* const row = logits + static_cast<int64_t>(blockIdx.x) * columns;
  const Wide log = logsumexp[blockIdx.x], times = gradient[blockIdx.x];
  const int64_t target = targets[blockIdx.x] - first;
  const auto at = [&](Wide x, int64_t column) {
    return times == 0 ? Wide(0) : (exp(x - log) - (column == target ? Wide(1) : Wide(0))) * times;
  };
  const bool aligned = reinterpret_cast<uintptr_t>(row) % sizeof(Group<Element>) == 0;
  const int64_t grouped = aligned ? columns / together * together : 0;
  for (int64_t c = static_cast<int64_t>(threadIdx.x) * together; c < grouped; c += threads * together) {
    Group<Element> group = *reinterpret_cast<const Group<Element>*>(row + c);
#pragma unroll
    for (int i = 0; i < together; ++i) group.at[i] = narrow<Element>(at(widen<Wide>(group.at[i]), c + i));
    *reinterpret_cast<Group<Element>*>(row + c) = group;
  }
  for (int64_t c = grouped + threadIdx.x; c < columns; c += threads)
    row[c] = narrow<Element>(at(widen<Wide>(row[c]), c));
}

/// Calls f(a number of what is kept, an element).
template <class F>
void by_type(const Logits& logits, F f) {
  if (logits.rows == 0 || logits.columns == 0) return;
  if (logits.dtype == DType::BFloat16) return f(float(), BFloat());
  if (logits.dtype == DType::Float32) return f(float(), float());
  invariant(logits.dtype == DType::Float64, "logits are of a type that there are kernels for");
  f(double(), double());
}

}  // namespace

void logsumexp_of_rows(const Logits& logits, void* out, cudaStream_t stream) {
  by_type(logits, [&](auto wide, auto element) {
    using Wide = decltype(wide);
    using Element = decltype(element);
    sum_powers<Wide, Element><<<static_cast<unsigned>(logits.rows), threads, 0, stream>>>(
        static_cast<const Element*>(logits.data), logits.columns, static_cast<Wide*>(out));
  });
  check_cuda(cudaGetLastError(), "add up powers of logits");
}

void softmax_gradient(const Logits& logits, const void* logsumexp, const int64_t* targets, const void* gradient,
                      int64_t first, cudaStream_t stream) {
  by_type(logits, [&](auto wide, auto element) {
    using Wide = decltype(wide);
    using Element = decltype(element);
    make_gradient<Wide, Element><<<static_cast<unsigned>(logits.rows), threads, 0, stream>>>(
        static_cast<Element*>(logits.data), logits.columns, static_cast<const Wide*>(logsumexp), targets,
        static_cast<const Wide*>(gradient), first);
  });
  check_cuda(cudaGetLastError(), "make gradients of logits");
}

}  // namespace piper::cuda
