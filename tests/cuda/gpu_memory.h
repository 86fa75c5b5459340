// Memory of a GPU that goes when its owner does, filled from and read back to memory of the host.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "comm/gpu/check.h"

namespace piper {

/// For tests that need a GPU.
#define SKIP_WITHOUT_GPU()                                                            \
  if (int devices = 0; cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) { \
    GTEST_SKIP() << "there is no GPU here";                                           \
  }

class GpuMemory {
 public:
  /// `offset`: bytes left out at the front, for places that are not aligned.
  explicit GpuMemory(const std::vector<std::byte>& from, size_t offset = 0) : offset_(offset), size_(from.size()) {
    check_cuda(cudaMalloc(&data_, size_ + offset_ + 1), "take memory of the GPU");
    check_cuda(cudaMemcpy(at(), from.data(), size_, cudaMemcpyHostToDevice), "copy to the GPU");
    check_cuda(cudaStreamSynchronize(nullptr), "wait for the GPU");  // which a copy of a few bytes does not
  }
  ~GpuMemory() { cudaFree(data_); }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  std::byte* at() const { return static_cast<std::byte*>(data_) + offset_; }
  std::vector<std::byte> read() const {
    std::vector<std::byte> out(size_);
    check_cuda(cudaMemcpy(out.data(), at(), size_, cudaMemcpyDeviceToHost), "copy from the GPU");
    return out;
  }

 private:
  size_t offset_, size_;
  void* data_ = nullptr;
};

}  // namespace piper
