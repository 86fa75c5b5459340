// Arrays of equal parts that lie interleaved, as those of an array that is cut along an inner dimension.
#pragma once

#include <cstddef>

namespace piper {

/// Copies part `i` of one array to part `j` of another; both have `n` interleaved parts of `bytes` bytes, in runs.
void copy_part(const std::byte* from, size_t i, size_t run_from, std::byte* to, size_t j, size_t run_to, size_t n,
               size_t bytes);

/// The member of `n` that is so many ranks before this one, modulo `n`.
inline size_t places_before(size_t me, int by, size_t n) {
  return (me + n - static_cast<size_t>(by) % n) % n;
}

}  // namespace piper
