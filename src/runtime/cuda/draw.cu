#include <cuda_fp16.h>

#include <algorithm>

#include "base/invariant.h"
#include "comm/gpu/check.h"
#include "runtime/cuda/draw.h"
#include "runtime/cuda/element_array.cuh"
#include "runtime/random/element_type.h"

namespace piper::cuda {
namespace {

constexpr int threads = 256, most_dims = 12;

struct Rows {
  int64_t start = 0, count = 1;
  int64_t groups = 1;  // of four words, at most, that a run touches
  int outer = 0;       // dimensions before the run
  DrawDim dims[most_dims], run;
};
struct WordsHere {
  uint64_t at[most_words_here];
};

template <class T>
__device__ T as(double number) {
  return narrow<T>(number);
}
template <>
__device__ __half as<__half>(double number) {
  return __double2half(number);
}

/// A thread draws a block of four words, and writes what of it belongs to its run.
template <class T>
__global__ void draw_groups(T* into, Drawing drawing, int digits, Rows rows, WordsHere here, const uint64_t* there) {
  const uint64_t* const words = there ? there : here.at;
  const int each = words_of(drawing.kind, digits);
  const int64_t together = 4 / each, all = rows.count * rows.groups;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const uint64_t chance = bernoulli_chance(drawing.a);
  for (int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; n < all; n += stride) {
    int64_t rest = n / rows.groups, memory = 0, first = rows.start, sample = 0, slice = 0;
    for (int d = rows.outer; d-- > 0;) {
      const DrawDim& dim = rows.dims[d];
      const int64_t i = rest % dim.size;
      rest /= dim.size;
      memory += i * dim.memory;
      first += i * dim.element;
      sample += i * dim.sample;
      slice += i * dim.slice;
    }
    const int64_t block = first / together + n % rows.groups;
    sample += static_cast<int64_t>(words[1 + slice]);
    uint32_t drawn[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                         static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)};
    philox(PhiloxKey(words[0]), drawn);
    for (int j = 0; j < together; ++j) {
      const int64_t i = block * together + j - first;
      if (i < 0 || i >= rows.run.size) continue;
      const uint32_t* const own = drawn + j * each;
      into[memory + i * rows.run.memory] = drawing.kind == Distribution::Bernoulli
                                               ? as<T>(own[0] < chance ? 1 : 0)
                                               : as<T>(drawn_number(drawing, digits, own[0], each == 2 ? own[1] : 0));
    }
  }
}

template <class T>
void launch(const Drawing& drawing, int digits, void* into, const Rows& rows, const DrawWords& words,
            cudaStream_t stream) {
  WordsHere here = {};
  if (!words.there) std::copy(words.here.begin(), words.here.end(), here.at);
  const int64_t blocks = (rows.count * rows.groups + threads - 1) / threads;
  draw_groups<T><<<static_cast<unsigned>(std::min<int64_t>(blocks, 65536)), threads, 0, stream>>>(
      static_cast<T*>(into), drawing, digits, rows, here, words.there);
  check_cuda(cudaGetLastError(), "draw random numbers");
}

}  // namespace

void draw(const Drawing& drawing, DType dtype, void* into, const DrawPlace& place, const DrawWords& words,
          cudaStream_t stream) {
  invariant(place.dims.size() <= most_dims, "what is drawn has few dimensions after they are joined");
  invariant(words.there || words.here.size() <= most_words_here, "many words lie in memory of the GPU");
  Rows rows;
  rows.start = place.start;
  rows.run = place.dims.back();
  rows.outer = static_cast<int>(place.dims.size()) - 1;
  const int digits = digits_of(dtype);
  const int64_t together = 4 / words_of(drawing.kind, digits);
  bool whole = place.start % together == 0;  // every run begins with a block
  for (int d = 0; d < rows.outer; ++d) {
    rows.dims[d] = place.dims[static_cast<size_t>(d)];
    rows.count *= rows.dims[d].size;
    whole = whole && rows.dims[d].element % together == 0;
  }
  if (rows.count == 0 || rows.run.size == 0) return;
  rows.groups = (rows.run.size + together - 1) / together + (whole ? 0 : 1);
  with_element_type<BFloat, __half>(
      dtype, [&]<class T>(std::type_identity<T>) { launch<T>(drawing, digits, into, rows, words, stream); });
}

}  // namespace piper::cuda
