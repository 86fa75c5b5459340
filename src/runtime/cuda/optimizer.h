// The optimizer of runtime/optimizer on a GPU: the same numbers in the same order, so the same bits.
//
// All pointers are to memory of the GPU. Nothing here waits: work is put on the stream.
#pragma once

#include <cuda_runtime.h>

#include "runtime/optimizer/optimizer.h"

namespace piper::cuda {

void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                      int64_t count, cudaStream_t stream);

void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step, const GradientScale& scale,
            std::byte* weights, const std::byte* gradients, std::byte* state, int64_t count, ElementPart part,
            cudaStream_t stream);

/// What `sum_of_squares` needs besides its arguments.
int64_t sum_of_squares_scratch(int64_t count);  // bytes
void sum_of_squares(DType dtype, const std::byte* elements, int64_t count, double* result, std::byte* scratch,
                    cudaStream_t stream);

}  // namespace piper::cuda
