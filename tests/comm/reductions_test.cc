// Reductions of arrays in memory.
#include "comm/reductions.h"

#include <gtest/gtest.h>

namespace piper {
namespace {

TEST(Reductions, BFloat16IsSummedInFloat32) {
  // 256 + 1 + 1: bfloat16 has 8 bits, so 256 + 1 would be 256 again if it were rounded in between
  const uint16_t x256 = 0x4380, one = 0x3F80, x258 = 0x4381;
  const uint16_t a = x256, b = one, c = one;
  uint16_t total = 0;
  const std::byte* from[] = {reinterpret_cast<const std::byte*>(&a), reinterpret_cast<const std::byte*>(&b),
                             reinterpret_cast<const std::byte*>(&c)};
  sum(from, reinterpret_cast<std::byte*>(&total), 2, DataType::BFloat16);
  EXPECT_EQ(total, x258);
}

}  // namespace
}  // namespace piper
