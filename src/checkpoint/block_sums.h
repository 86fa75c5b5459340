// Checksums of files that several processes write: CRC-32 of every block of 4 MiB, joined from those of its parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/layout.h"

namespace piper {

/// The last block of a file may be shorter.
constexpr int64_t block_bytes = int64_t{4} << 20;
inline int64_t blocks_in(int64_t file_bytes) {
  return file_bytes / block_bytes + (file_bytes % block_bytes != 0);
}

/// CRC-32 (zlib's) of bytes.
uint32_t crc_of(std::span<const std::byte> bytes);

/// What one writer knows of a block: bytes that do not cross a border of blocks. Trivially copyable.
struct SummedRange {
  int32_t file = 0;  // index in FolderLayout::files
  uint32_t crc = 0;
  int64_t begin = 0, bytes = 0;

  friend bool operator==(const SummedRange&, const SummedRange&) = default;
};

/// Joins neighbours within a block, in any order. E903 if two ranges overlap.
Result<std::vector<SummedRange>> merge(const FolderLayout& layout, std::vector<SummedRange> ranges);

/// The sums of the blocks of one file, in order.
using BlockSums = std::vector<uint32_t>;

/// The sums of all files, from the ranges of all writers. E903 names file and bytes if ranges overlap or leave a gap.
Result<std::vector<BlockSums>> join(const FolderLayout& layout, std::vector<SummedRange> ranges);

}  // namespace piper
