// Random numbers by their place in the batch (runtime/random/draw_place.h), on a GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "runtime/random/draw_place.h"

namespace piper::cuda {

/// What is known when the work is put on the stream, or lies in memory of the GPU and is read when it runs: the key,
/// then the first sample of every slice.
struct DrawWords {
  std::span<const uint64_t> here;
  const uint64_t* there = nullptr;
};
/// More of them have to be there.
constexpr size_t most_words_here = 64;

/// `place`: its dimensions are joined; its samples are in the words.
void draw(const Drawing& drawing, DType dtype, void* into, const DrawPlace& place, const DrawWords& words,
          cudaStream_t stream);

}  // namespace piper::cuda
