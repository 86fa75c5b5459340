// Fills of memory in CUDA graphs.
#pragma once

#include <cuda_runtime.h>

namespace piper::cuda {

/// What the graph fills with CUDA's own memset is filled by a kernel instead. Between two kernels a memset costs a GPU
/// several microseconds, and the host two at every launch; libraries use them for a few bytes.
void fill_by_kernels(cudaGraph_t graph);

}  // namespace piper::cuda
