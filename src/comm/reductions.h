// Reductions of arrays in memory, element by element: sums and maxima.
#pragma once

#include <cstddef>
#include <span>

#include "comm/communicator.h"

namespace piper {

/// `to` becomes the sum of all `from`, element by element, in their order; `to` may be one of them. bfloat16 is summed
/// in float32 and rounded once.
void sum(std::span<const std::byte* const> from, std::byte* to, size_t bytes, DataType dtype);
/// The greatest of all `from`; NaN if one of them is.
void maximum(std::span<const std::byte* const> from, std::byte* to, size_t bytes, DataType dtype);
void combine(std::span<const std::byte* const> from, std::byte* to, size_t bytes, DataType dtype, Combine how);
/// `to` += `from`.
void add(const std::byte* from, std::byte* to, size_t bytes, DataType dtype);

}  // namespace piper
