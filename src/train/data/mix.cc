#include "train/data/mix.h"

#include <bit>

namespace piper {

uint64_t shuffled(uint64_t index, uint64_t count, uint64_t key) {
  // a Feistel network permutes the numbers of 2 * half bits; those that are too large are sent on until they fit
  const int half = (std::bit_width(count - 1) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  do {
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t left = index >> half, right = index & mask;
      index = right << half | (left ^ (mix64(key + round, right) & mask));
    }
  } while (index >= count);
  return index;
}

}  // namespace piper
