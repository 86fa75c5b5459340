// Sums, maxima and copies between the devices of one GPU. All pointers are to its memory; work is put on the stream.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>

#include "comm/communicator.h"

namespace piper::gpu {

/// Members of an exchange.
constexpr size_t most_members = 64;

/// As `combine` of comm/reductions.h, bit for bit; every `to` gets the result.
void combine(std::span<const std::byte* const> from, std::span<std::byte* const> to, size_t bytes, DataType dtype,
             Combine how, cudaStream_t stream);
/// `to` += the sum.
void add_sum(std::span<const std::byte* const> from, std::byte* to, size_t bytes, DataType dtype, cudaStream_t stream);

/// As `copy_part` of comm/parts.h, for all members: part `me` of everybody's `from` becomes a part of `to`.
void copy_parts(std::span<const std::byte* const> from, size_t me, size_t run_from, std::byte* to, size_t run_to,
                size_t bytes, cudaStream_t stream);

}  // namespace piper::gpu
