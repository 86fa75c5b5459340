// Sizes: what is read, what is written, and that writing and reading are inverse.
#include "base/bytes.h"

#include <gtest/gtest.h>

#include <limits>

namespace piper {
namespace {

TEST(Bytes, DecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("512"), 512);
  EXPECT_EQ(parse_bytes("512B"), 512);
  EXPECT_EQ(parse_bytes("3KB"), 3000);
  EXPECT_EQ(parse_bytes("25MB"), 25'000'000);
  EXPECT_EQ(parse_bytes("2GB"), 2'000'000'000);
  EXPECT_EQ(parse_bytes("1TB"), 1'000'000'000'000);
  EXPECT_EQ(parse_bytes("512KiB"), 512 * 1024);
  EXPECT_EQ(parse_bytes("16GiB"), int64_t{16} << 30);
  EXPECT_EQ(parse_bytes("1TiB"), int64_t{1} << 40);
}

TEST(Bytes, FractionsThatAreWholeBytes) {
  EXPECT_EQ(parse_bytes("1.5KB"), 1500);
  EXPECT_EQ(parse_bytes("0.5MiB"), 512 * 1024);
  EXPECT_EQ(parse_bytes("0.0001KB"), std::nullopt);
}

TEST(Bytes, MalformedIsNothing) {
  for (const char* text :
       {"", "MB", "25mb", "25 MB", "-1", "-1KB", "1e30", "nan", "inf", "99999999TB", "25MBx", "0x10"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
}

TEST(Bytes, PrintedWithTheLargestDecimalUnitThatDivides) {
  EXPECT_EQ(print_bytes(0), "0");
  EXPECT_EQ(print_bytes(999), "999");
  EXPECT_EQ(print_bytes(25'000'000), "25MB");
  EXPECT_EQ(print_bytes(25'000'001), "25000001");
  EXPECT_EQ(print_bytes(1'500'000), "1500KB");
}

TEST(Bytes, ReadingIsTheInverseOfPrinting) {
  for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1024}, int64_t{123'456'789}, int64_t{1} << 53,
                        (int64_t{1} << 53) + 1, std::numeric_limits<int64_t>::max()})
    EXPECT_EQ(parse_bytes(print_bytes(bytes)), bytes);
}

TEST(Bytes, ForPeople) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.00 KiB");
  EXPECT_EQ(human_bytes(1536ll << 20), "1.50 GiB");
  EXPECT_EQ(human_bytes(80ll << 30), "80.0 GiB");
  EXPECT_EQ(human_bytes(640ll << 30), "640 GiB");
}

}  // namespace
}  // namespace piper
