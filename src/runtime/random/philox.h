// Random bits as a function of a counter and a key: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). The same lines for CPUs and GPUs.
#pragma once

#include <cstdint>

#include "base/on_both.h"

namespace piper {

struct PhiloxKey {
  uint32_t low = 0, high = 0;
  explicit PIPER_ON_BOTH PhiloxKey(uint64_t key)
      : low(static_cast<uint32_t>(key)), high(static_cast<uint32_t>(key >> 32)) {}
  PIPER_ON_BOTH void next() {
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
};

/// A round of one block of four words.
PIPER_ON_BOTH inline void philox_round(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, uint32_t low,
                                       uint32_t high) {
  const uint64_t p = uint64_t{0xD2511F53u} * a, q = uint64_t{0xCD9E8D57u} * c;
  a = static_cast<uint32_t>(q >> 32) ^ b ^ low;
  c = static_cast<uint32_t>(p >> 32) ^ d ^ high;
  b = static_cast<uint32_t>(q);
  d = static_cast<uint32_t>(p);
}
constexpr int philox_rounds = 10;

/// Four words of a block, in its counter.
PIPER_ON_BOTH inline void philox(PhiloxKey key, uint32_t (&words)[4]) {
  for (int round = 0; round < philox_rounds; ++round) {
    philox_round(words[0], words[1], words[2], words[3], key.low, key.high);
    key.next();
  }
}

}  // namespace piper
