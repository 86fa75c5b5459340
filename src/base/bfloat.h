// bfloat16 as it lies in memory: the upper half of a float32.
#pragma once

#include <bit>
#include <cstdint>

namespace piper {

struct BFloat {
  uint16_t bits;
};

constexpr float to_float(BFloat x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

/// To the nearest, ties to even.
constexpr BFloat to_bfloat(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x != x) return {0x7FC0};
  return {static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
}

}  // namespace piper
