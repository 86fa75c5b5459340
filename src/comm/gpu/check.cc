#include "comm/gpu/check.h"

#include <fmt/format.h>

#include <stdexcept>

namespace piper {

void check_cuda(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(
      fmt::format("cannot {}: {} ({})", doing, cudaGetErrorString(status), cudaGetErrorName(status)));
}

}  // namespace piper
