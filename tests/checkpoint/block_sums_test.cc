#include "checkpoint/block_sums.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/sample_folder.h"
#include "must.h"

namespace piper::checkpoint_tests {
namespace {

/// One file of so many bytes.
FolderLayout one_file(int64_t bytes) {
  FolderLayout layout;
  layout.files.push_back({"f", {}, {}, bytes});
  return layout;
}

std::string problem(int64_t bytes, std::vector<SummedRange> ranges) {
  const auto sums = join(one_file(bytes), std::move(ranges));
  return sums ? "none" : sums.error().message;
}

TEST(BlockSums, AnyPiecesInAnyOrderGiveTheSumsOfTheBlocks) {
  Random random(1);
  for (int round = 0; round < 20; ++round) {
    const int64_t size = up_to(random, 3 * block_bytes);
    const std::vector<std::byte> bytes = bytes_of_tensor("x", size, round);
    BlockSums expected;
    for (int64_t at = 0; at < size; at += block_bytes)
      expected.push_back(crc_of(std::span(bytes).subspan(at, std::min(block_bytes, size - at))));
    std::vector<SummedRange> ranges;
    for (int64_t at = 0; at < size;) {
      const int64_t border = std::min(size, (at / block_bytes + 1) * block_bytes);
      const int64_t length = std::min(border - at, 1 + up_to(random, block_bytes / 8));
      ranges.push_back({0, crc_of(std::span(bytes).subspan(at, length)), at, length});
      at += length;
    }
    std::ranges::shuffle(ranges, random);
    EXPECT_EQ(must(join(one_file(size), ranges)), std::vector<BlockSums>{expected});
    const auto merged = must(merge(one_file(size), ranges));
    EXPECT_EQ(merged.size(), expected.size());
    EXPECT_EQ(must(join(one_file(size), merged)), std::vector<BlockSums>{expected});
  }
}

TEST(BlockSums, GapsAndOverlapsAreNamed) {
  const int64_t b = block_bytes;
  EXPECT_EQ(problem(0, {}), "none");
  EXPECT_EQ(problem(10, {{0, 0, 0, 10}}), "none");
  EXPECT_EQ(problem(10, {{0, 0, 0, 4}, {0, 0, 4, 6}, {0, 0, 4, 0}}), "none");
  EXPECT_EQ(problem(10, {}), "bytes 0 to 10 of f were not written");
  EXPECT_EQ(problem(10, {{0, 0, 0, 9}}), "bytes 9 to 10 of f were not written");
  EXPECT_EQ(problem(10, {{0, 0, 1, 9}}), "bytes 0 to 1 of f were not written");
  EXPECT_EQ(problem(10, {{0, 0, 0, 4}, {0, 0, 5, 5}}), "bytes 4 to 10 of f were not written");
  EXPECT_EQ(problem(10, {{0, 0, 0, 5}, {0, 0, 4, 6}}), "bytes 4 to 5 of f were written twice");
  EXPECT_EQ(problem(10, {{0, 0, 0, 10}, {0, 0, 0, 10}}), "bytes 0 to 10 of f were written twice");
  EXPECT_EQ(problem(3 * b, {{0, 0, 0, b}, {0, 0, 2 * b, b}}), "bytes 4194304 to 8388608 of f were not written");
  EXPECT_EQ(problem(b + 5, {{0, 0, 0, b}}), "bytes 4194304 to 4194309 of f were not written");
}

}  // namespace
}  // namespace piper::checkpoint_tests
