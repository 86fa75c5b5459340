#include "comm/gpu/kernels.h"

#include <algorithm>

#include "base/bfloat.h"
#include "base/invariant.h"
#include "comm/gpu/check.h"

namespace piper::gpu {
namespace {

constexpr int threads = 256;
constexpr size_t most_blocks = 132 * 16;  // enough to fill every GPU; threads go on with what is left

template <class Pointer>
struct Pointers {
  Pointer at[most_members];
  int count = 0;
};

template <class Pointer>
Pointers<Pointer> pointers(std::span<const Pointer> from) {
  invariant(from.size() <= most_members, "a kernel has room for all members");
  Pointers<Pointer> out;
  std::copy(from.begin(), from.end(), out.at);
  out.count = static_cast<int>(from.size());
  return out;
}

unsigned blocks_for(size_t items) {
  return static_cast<unsigned>(std::clamp<size_t>((items + threads - 1) / threads, 1, most_blocks));
}

/// In the order of the members, as the processor does it.
template <class T>
__device__ T total(const Pointers<const std::byte*>& from, size_t i) {
  if constexpr (std::is_same_v<T, BFloat>) {
    float sum = 0;
    for (int m = 0; m < from.count; ++m) sum += to_float(reinterpret_cast<const BFloat*>(from.at[m])[i]);
    return to_bfloat(sum);
  } else {
    T sum = reinterpret_cast<const T*>(from.at[0])[i];
    for (int m = 1; m < from.count; ++m) sum += reinterpret_cast<const T*>(from.at[m])[i];
    return sum;
  }
}

/// A NaN is greater than every other value.
template <class T>
__device__ T greatest(const Pointers<const std::byte*>& from, size_t i) {
  const auto wide = [](T value) {
    if constexpr (std::is_same_v<T, BFloat>)
      return to_float(value);
    else
      return value;
  };
  T found = reinterpret_cast<const T*>(from.at[0])[i];
  for (int m = 1; m < from.count; ++m) {
    const T next = reinterpret_cast<const T*>(from.at[m])[i];
    if (wide(next) > wide(found) || wide(next) != wide(next)) found = next;
  }
  return found;
}

template <class T>
__device__ T added(T a, T b) {
  if constexpr (std::is_same_v<T, BFloat>)
    return to_bfloat(to_float(a) + to_float(b));
  else
    return a + b;
}

template <class T, Combine how>
__global__ void combine_elements(Pointers<const std::byte*> from, Pointers<std::byte*> to, size_t count) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const T one = how == Combine::Sum ? total<T>(from, i) : greatest<T>(from, i);
    for (int m = 0; m < to.count; ++m) reinterpret_cast<T*>(to.at[m])[i] = one;
  }
}

template <class T>
__global__ void add_sum_elements(Pointers<const std::byte*> from, T* to, size_t count) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    to[i] = added(to[i], total<T>(from, i));
}

/// Sizes are in words.
template <class Word>
__global__ void copy_words(Pointers<const std::byte*> from, size_t me, size_t run_from, Word* to, size_t run_to,
                           size_t words) {
  const auto n = static_cast<size_t>(from.count);
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n * words; i += stride) {
    const size_t m = i / words, at = i % words;
    const Word* source = reinterpret_cast<const Word*>(from.at[m]);
    to[(at / run_to * n + m) * run_to + at % run_to] = source[(at / run_from * n + me) * run_from + at % run_from];
  }
}

template <class Use>
void with_type(DataType dtype, const Use& use) {
  switch (dtype) {
    case DataType::Float64:
      return use(double{});
    case DataType::Float32:
      return use(float{});
    case DataType::BFloat16:
      return use(BFloat{});
  }
}

}  // namespace

void combine(std::span<const std::byte* const> from, std::span<std::byte* const> to, size_t bytes, DataType dtype,
             Combine how, cudaStream_t stream) {
  if (bytes == 0) return;
  with_type(dtype, [&]<class T>(T) {
    const size_t count = bytes / sizeof(T);
    const auto kernel = how == Combine::Sum ? combine_elements<T, Combine::Sum> : combine_elements<T, Combine::Max>;
    kernel<<<blocks_for(count), threads, 0, stream>>>(pointers<const std::byte*>(from), pointers<std::byte*>(to),
                                                      count);
  });
  check_cuda(cudaGetLastError(), "combine elements");
}

void add_sum(std::span<const std::byte* const> from, std::byte* to, size_t bytes, DataType dtype, cudaStream_t stream) {
  if (bytes == 0) return;
  with_type(dtype, [&]<class T>(T) {
    const size_t count = bytes / sizeof(T);
    add_sum_elements<T>
        <<<blocks_for(count), threads, 0, stream>>>(pointers<const std::byte*>(from), reinterpret_cast<T*>(to), count);
  });
  check_cuda(cudaGetLastError(), "add elements");
}

void copy_parts(std::span<const std::byte* const> from, size_t me, size_t run_from, std::byte* to, size_t run_to,
                size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  auto odd = static_cast<uintptr_t>(run_from | run_to | bytes) | reinterpret_cast<uintptr_t>(to);
  for (const std::byte* member : from) odd |= reinterpret_cast<uintptr_t>(member);
  const auto launch = [&]<class Word>(Word) {
    const size_t words = bytes / sizeof(Word);
    copy_words<Word><<<blocks_for(words * from.size()), threads, 0, stream>>>(
        pointers<const std::byte*>(from), me, run_from / sizeof(Word), reinterpret_cast<Word*>(to),
        run_to / sizeof(Word), words);
  };
  if (odd % sizeof(int4) == 0)
    launch(int4{});
  else if (odd % sizeof(int2) == 0)
    launch(int2{});
  else if (odd % sizeof(int) == 0)
    launch(int{});
  else
    launch(std::byte{});
  check_cuda(cudaGetLastError(), "copy parts of values");
}

}  // namespace piper::gpu
