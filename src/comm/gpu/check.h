// What goes wrong on a GPU, as exceptions.
#pragma once

#include <cuda_runtime.h>

namespace piper {

/// `doing`: what failed, as in "cannot copy to the GPU".
void check_cuda(cudaError_t status, const char* doing);

}  // namespace piper
