// Rows of logits on a GPU: their logsumexp, and their gradient in place.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "model/size.h"

namespace piper::cuda {

/// Rows one after another, of so many columns.
struct Logits {
  DType dtype = DType::Float32;  // what is kept of a row is float32, of float64 float64
  void* data = nullptr;
  int64_t rows = 0, columns = 0;
};

void logsumexp_of_rows(const Logits& logits, void* out, cudaStream_t stream);

/// Logits become (exp(logit - logsumexp) - 1 at the target) times the gradient of their row. A target counts from
/// `first`; one that is not among the columns is nowhere.
void softmax_gradient(const Logits& logits, const void* logsumexp, const int64_t* targets, const void* gradient,
                      int64_t first, cudaStream_t stream);

}  // namespace piper::cuda
