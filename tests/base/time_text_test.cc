#include "base/time_text.h"

#include <gtest/gtest.h>

namespace piper {
namespace {

TEST(TimeText, ThreeDigitsThatMatter) {
  EXPECT_EQ(human_seconds(0), "0 s");
  EXPECT_EQ(human_seconds(12.345), "12.3 s");
  EXPECT_EQ(human_seconds(1234.5), "1234 s");
  EXPECT_EQ(human_seconds(0.04), "40.0 ms");
  EXPECT_EQ(human_seconds(0.99961), "1.00 s");
  EXPECT_EQ(human_seconds(9.996e-3), "10.0 ms");
  EXPECT_EQ(human_seconds(4.56e-6), "4.56 us");
  EXPECT_EQ(human_seconds(3e-12), "0.00 ns");
  EXPECT_EQ(human_seconds(-0.002), "-2.00 ms");
}

}  // namespace
}  // namespace piper
