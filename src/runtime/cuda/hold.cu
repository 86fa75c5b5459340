#include "comm/gpu/check.h"
#include "runtime/cuda/hold.h"

namespace piper::cuda {
namespace {

__device__ int64_t gpu_time() {
  int64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void wait_for(int64_t nanoseconds) {
  const int64_t end = gpu_time() + nanoseconds;
  while (gpu_time() < end) __nanosleep(1000);
}

}  // namespace

void hold(int64_t nanoseconds, cudaStream_t stream) {
  if (nanoseconds <= 0) return;
  wait_for<<<1, 1, 0, stream>>>(nanoseconds);
  check_cuda(cudaGetLastError(), "hold a stream");
}

}  // namespace piper::cuda
