#include <algorithm>

#include "base/invariant.h"
#include "comm/gpu/check.h"
#include "runtime/cuda/gradient_sums.h"
#include "runtime/cuda/element_array.cuh"

namespace piper::cuda {
namespace {

constexpr int threads = 256;
constexpr size_t most_additions = 64;  // of a kernel: all are arguments of it

struct Additions {
  Addition at[most_additions];
};

/// A row of blocks for each.
template <class To, class From>
__global__ void add_elements(Additions additions) {
  const Addition& mine = additions.at[blockIdx.y];
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < mine.count; i += stride)
    static_cast<To*>(mine.to)[i] += widen<To>(static_cast<const From*>(mine.from)[i]);
}

template <class To, class From>
void launch(std::span<const Addition> additions, cudaStream_t stream) {
  for (size_t begin = 0; begin < additions.size(); begin += most_additions) {
    const auto now = additions.subspan(begin, std::min(most_additions, additions.size() - begin));
    Additions given;
    std::copy(now.begin(), now.end(), given.at);
    int64_t most = 1;
    for (const Addition& addition : now) most = std::max(most, addition.count);
    const dim3 blocks(static_cast<unsigned>(std::min<int64_t>((most + threads - 1) / threads, 64)),
                      static_cast<unsigned>(now.size()));
    add_elements<To, From><<<blocks, threads, 0, stream>>>(given);
  }
  check_cuda(cudaGetLastError(), "add up gradients");
}

constexpr int tile_columns = 32, tile_rows = 32, rows_of_block = 8 * tile_rows;

/// A block adds up some rows of some columns: threads of a warp have columns side by side, each takes every 32nd row.
/// `parts`: where all blocks of a column leave what they have; none: a single block, which adds to the sum.
template <class To, class From>
__global__ void sum_rows(To* sum, To* parts, const From* elements, int64_t rows, int64_t columns) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * tile_columns + threadIdx.x;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * rows_of_block + threadIdx.y;
  To mine = 0;
  if (column < columns) {
#pragma unroll
    for (int i = 0; i < rows_of_block / tile_rows; ++i)
      if (const int64_t row = first + i * tile_rows; row < rows) mine += widen<To>(elements[row * columns + column]);
  }
  __shared__ To tile[tile_rows][tile_columns + 1];
  tile[threadIdx.y][threadIdx.x] = mine;
  __syncthreads();
  // turned: a warp adds up one column
  To total = tile[threadIdx.x][threadIdx.y];
  for (int step = 16; step > 0; step /= 2) total += __shfl_down_sync(~0u, total, step);
  const int64_t own = static_cast<int64_t>(blockIdx.x) * tile_columns + threadIdx.y;
  if (threadIdx.x != 0 || own >= columns) return;
  if (parts)
    parts[static_cast<int64_t>(blockIdx.y) * columns + own] = total;
  else
    sum[own] += total;
}

template <class To>
__global__ void add_parts(To* sum, const To* parts, int64_t count, int64_t columns) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  To total = 0;
  for (int64_t i = 0; i < count; ++i) total += parts[i * columns + column];
  sum[column] += total;
}

int64_t parts_of(int64_t rows) {
  return (rows + rows_of_block - 1) / rows_of_block;
}

template <class To, class From>
void launch_rows(void* sum, const void* elements, int64_t rows, int64_t columns, void* scratch, cudaStream_t stream) {
  if (rows == 0 || columns == 0) return;
  const int64_t parts = parts_of(rows);
  const dim3 blocks(static_cast<unsigned>((columns + tile_columns - 1) / tile_columns), static_cast<unsigned>(parts));
  sum_rows<To, From><<<blocks, dim3(tile_columns, tile_rows), 0, stream>>>(
      static_cast<To*>(sum), parts > 1 ? static_cast<To*>(scratch) : nullptr, static_cast<const From*>(elements), rows,
      columns);
  if (parts > 1)
    add_parts<To><<<static_cast<unsigned>((columns + threads - 1) / threads), threads, 0, stream>>>(
        static_cast<To*>(sum), static_cast<const To*>(scratch), parts, columns);
  check_cuda(cudaGetLastError(), "add up gradients");
}

}  // namespace

int64_t add_sum_of_rows_scratch(DType to, int64_t rows, int64_t columns) {
  return parts_of(rows) > 1 ? parts_of(rows) * columns * bytes_of(to) : 0;
}

void add_sum_of_rows(DType to, DType from, void* sum, const void* elements, int64_t rows, int64_t columns,
                     void* scratch, cudaStream_t stream) {
  if (to == DType::Float32 && from == DType::BFloat16)
    return launch_rows<float, BFloat>(sum, elements, rows, columns, scratch, stream);
  if (to == DType::Float32 && from == DType::Float32)
    return launch_rows<float, float>(sum, elements, rows, columns, scratch, stream);
  invariant(to == DType::Float64 && from == DType::Float64, "gradients are added to elements that are no narrower");
  launch_rows<double, double>(sum, elements, rows, columns, scratch, stream);
}

void add_to_each(DType to, DType from, std::span<const Addition> additions, cudaStream_t stream) {
  if (to == DType::Float32 && from == DType::BFloat16) return launch<float, BFloat>(additions, stream);
  if (to == DType::Float32 && from == DType::Float32) return launch<float, float>(additions, stream);
  invariant(to == DType::Float64 && from == DType::Float64, "gradients are added to elements that are no narrower");
  launch<double, double>(additions, stream);
}

}  // namespace piper::cuda
