// Moments in bfloat16 that are right in the mean: rounded up or down at random. To the nearest a moment would stand
// still as soon as what is added to it is less than half of its last digit.
//
// The bits are a function of a key (seed and parameter), of the number of the update and of the element in the whole
// parameter: every plan draws the same, and all copies of an element stay equal. The same lines for CPUs and GPUs.
#pragma once

#include <bit>
#include <cstdint>

#include "base/on_both.h"
#include "runtime/random/philox.h"

namespace piper {

/// Elements of a whole parameter that are updated together: runs of equal length, equally far apart.
struct RoundedElements {
  uint64_t key = 0;
  int64_t first = 0;                   // of the parameter
  int64_t run = INT64_MAX, apart = 0;  // elements of a run, and from one run to the next
  PIPER_ON_BOTH int64_t operator[](int64_t i) const { return i < run ? first + i : first + i / run * apart + i % run; }
};

/// A word for each of the elements [begin, begin + count).
PIPER_ON_BOTH inline void random_words(const RoundedElements& elements, int64_t update, int64_t begin, int count,
                                       uint32_t* words) {
  int64_t drawn = -1;  // of the blocks of four
  uint32_t block[4] = {};
  for (int i = 0; i < count; ++i) {
    const int64_t element = elements[begin + i];
    if (element / 4 != drawn) {
      drawn = element / 4;
      block[0] = static_cast<uint32_t>(drawn);
      block[1] = static_cast<uint32_t>(drawn >> 32);
      block[2] = static_cast<uint32_t>(update);
      block[3] = static_cast<uint32_t>(update >> 32);
      philox(PhiloxKey(elements.key), block);
    }
    words[i] = block[element % 4];
  }
}

/// One of the two bfloat16 beside a number, the nearer the likelier: by 16 random bits. What is not finite stays so.
PIPER_ON_BOTH inline float to_bfloat_at_random(float x, uint32_t sixteen_bits) {
  constexpr uint32_t exponent = 0x7F800000, last_digits = 0xFFFF;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & exponent) == exponent) return x;
  return std::bit_cast<float>((bits + (sixteen_bits & last_digits)) & ~last_digits);
}

/// Both moments of an element, by one word.
template <class T>
PIPER_ON_BOTH void round_moments(T& m, T& v, uint32_t word) {
  m = static_cast<T>(to_bfloat_at_random(static_cast<float>(m), word >> 16));
  v = static_cast<T>(to_bfloat_at_random(static_cast<float>(v), word));
}

}  // namespace piper
