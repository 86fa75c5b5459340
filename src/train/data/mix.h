// Integer hashes: where others would draw random numbers, these depend on what is asked for and on nothing else.
#pragma once

#include <cstdint>

namespace piper {

/// The finaliser of MurmurHash3, 32 bits.
constexpr uint32_t mix32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

/// The same idea in 64 bits: one step of splitmix64.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
constexpr uint64_t mix64(uint64_t a, uint64_t b) {
  return mix64(mix64(a) ^ b);
}

/// Where `index` below `count` goes in the shuffle that `key` stands for: every place is taken once.
uint64_t shuffled(uint64_t index, uint64_t count, uint64_t key);

}  // namespace piper
