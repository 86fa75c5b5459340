// Numbers of any type, a block at a time: what the kernels work on fits in the nearest cache and has one type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "model/size.h"

namespace piper {

constexpr int block_size = 512;
template <class T>
using Block = std::array<T, block_size>;

/// float64, float32 and bfloat16.
bool has_kernels(DType dtype);

/// Elements [begin, end) of an array, at most a block of them, to and from the front of a block. They are rounded to
/// the nearest, ties to even.
template <class T>
void load(DType dtype, const std::byte* from, int64_t begin, int64_t end, Block<T>& to);
template <class T>
void store(DType dtype, const Block<T>& from, std::byte* to, int64_t begin, int64_t end);

}  // namespace piper
