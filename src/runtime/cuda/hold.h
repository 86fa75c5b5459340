// Keeps a stream of a GPU waiting.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace piper::cuda {

/// What is put on the stream next begins after so many nanoseconds of the GPU's clock.
void hold(int64_t nanoseconds, cudaStream_t stream);

}  // namespace piper::cuda
