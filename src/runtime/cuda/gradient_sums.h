// Sums of gradients on a GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "model/size.h"

namespace piper::cuda {

struct Addition {
  void* to = nullptr;
  const void* from = nullptr;
  int64_t count = 0;
};

/// Each `to` += its `from`, as few kernels as possible. float64 and float32 each to itself, bfloat16 to float32.
void add_to_each(DType to, DType from, std::span<const Addition> additions, cudaStream_t stream);

/// `to` [columns] += the sum of all rows of `from` [rows, columns], always in the same order; the same types.
/// `scratch`: of so many bytes.
int64_t add_sum_of_rows_scratch(DType to, int64_t rows, int64_t columns);
void add_sum_of_rows(DType to, DType from, void* sum, const void* elements, int64_t rows, int64_t columns, void* scratch,
                     cudaStream_t stream);

}  // namespace piper::cuda
