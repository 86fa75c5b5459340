// The integer hash behind the weights and tokens of the reference decoder: equal on every machine, without generators.
#pragma once

#include <cstdint>
#include <string_view>

namespace piper {

/// The finaliser of MurmurHash3.
inline uint32_t fmix32(uint32_t h) {
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  return h ^ (h >> 16);
}

inline uint32_t fnv1a32(std::string_view text) {
  uint32_t h = 2166136261u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

}  // namespace piper
