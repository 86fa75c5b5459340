// The tree of runtime/optimizer/sum_of_squares.cc, level by level.
//
// There a range of blocks is cut in halves, the first the larger, until one block is left. Here the tree is complete:
// where a path has ended a sum of 0 stands beside it, which changes nothing.
#include <bit>

#include "comm/gpu/check.h"
#include "runtime/cuda/element_array.cuh"
#include "runtime/cuda/optimizer.h"
#include "runtime/optimizer/element_blocks.h"

namespace piper::cuda {
namespace {

constexpr int lanes = 8;  // sums side by side in a block
constexpr int threads = 256;
constexpr int levels = 10;  // of the tree that one launch takes

int64_t blocks_of(int64_t count) {
  return (count + block_size - 1) / block_size;
}
int depth_of(int64_t blocks) {
  return blocks <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<uint64_t>(blocks - 1)));
}

template <class Element>
__device__ double lane_sum(const Element* elements, int64_t begin, int64_t count, int lane) {
  double total = 0;
  for (int64_t i = begin + lane; i < begin + block_size; i += lanes) {
    const double x = i < count ? widen<double>(elements[i]) : 0;
    total += x * x;
  }
  return total;
}

/// `lanes` threads for every block of elements.
__global__ void sum_blocks(ElementArray elements, int64_t count, int64_t blocks, double* sums) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t block = thread / lanes;
  const int lane = static_cast<int>(thread % lanes);
  double total = 0;
  if (block < blocks) {
    const int64_t begin = block * block_size;
    if (elements.dtype == DType::Float32)
      total = lane_sum(reinterpret_cast<const float*>(elements.data), begin, count, lane);
    else if (elements.dtype == DType::BFloat16)
      total = lane_sum(reinterpret_cast<const BFloat*>(elements.data), begin, count, lane);
    else
      total = lane_sum(reinterpret_cast<const double*>(elements.data), begin, count, lane);
  }
  for (int distance = 1; distance < lanes; distance *= 2) total += __shfl_down_sync(0xFFFFFFFF, total, distance, lanes);
  if (lane == 0 && block < blocks) sums[block] = total;
}

/// The sum at a leaf of the complete tree: of its block, or 0.
__device__ double leaf(const double* sums, int64_t blocks, int depth, int64_t index) {
  int64_t begin = 0, size = blocks;
  for (int level = depth - 1; level >= 0 && size > 0; --level) {
    const int64_t first = (size + 1) / 2;
    if (index >> level & 1) {
      begin += first;
      size -= first;
    } else {
      size = first;
    }
  }
  return size > 0 ? sums[begin] : 0;
}

/// Every block of threads sums the 2^taken nodes below its own; `blocks` > 0: they are leaves of the tree.
__global__ void sum_nodes(const double* nodes, int64_t blocks, int depth, int taken, double* parents) {
  __shared__ double sums[1 << levels];
  const int width = 1 << taken;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x)) {
    const int64_t node = static_cast<int64_t>(blockIdx.x) * width + i;
    sums[i] = blocks > 0 ? leaf(nodes, blocks, depth, node) : nodes[node];
  }
  for (int size = width / 2; size > 0; size /= 2) {
    double sum[(1 << levels) / 2 / threads];
    __syncthreads();
    for (int k = 0, i = static_cast<int>(threadIdx.x); i < size; i += threads, ++k)
      sum[k] = sums[2 * i] + sums[2 * i + 1];
    __syncthreads();
    for (int k = 0, i = static_cast<int>(threadIdx.x); i < size; i += threads, ++k) sums[i] = sum[k];
  }
  __syncthreads();
  if (threadIdx.x == 0) parents[blockIdx.x] = sums[0];
}

}  // namespace

int64_t sum_of_squares_scratch(int64_t count) {
  const int64_t blocks = blocks_of(count);
  const int64_t nodes = int64_t{1} << depth_of(blocks);
  return static_cast<int64_t>(sizeof(double)) * (blocks + nodes / 2 + 2);
}

void sum_of_squares(DType dtype, const std::byte* elements, int64_t count, double* result, std::byte* scratch,
                    cudaStream_t stream) {
  const int64_t blocks = blocks_of(count);
  if (blocks == 0) {
    check_cuda(cudaMemsetAsync(result, 0, sizeof(double), stream), "clear a sum");
    return;
  }
  auto* sums = reinterpret_cast<double*>(scratch);
  sum_blocks<<<static_cast<unsigned>((blocks * lanes + threads - 1) / threads), threads, 0, stream>>>(
      cuda::element_array(dtype, elements), count, blocks, sums);
  double *from = sums, *to = sums + blocks;
  int64_t leaves = blocks;
  for (int depth = depth_of(blocks), left = depth;;) {
    const int taken = left < levels ? left : levels;
    left -= taken;
    double* target = left == 0 ? result : to;
    sum_nodes<<<1u << left, threads, 0, stream>>>(from, leaves, depth, taken, target);
    if (left == 0) break;
    to += int64_t{1} << left;
    from = target;
    leaves = 0;
  }
  check_cuda(cudaGetLastError(), "sum squares");
}

}  // namespace piper::cuda
