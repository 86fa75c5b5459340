#include "checkpoint/block_sums.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <tuple>

#include "base/invariant.h"

namespace piper {
namespace {

Diagnostic badly_written(const FolderLayout& layout, int file, int64_t begin, int64_t end, std::string_view how) {
  return error(
      ErrorCode::E903, {},
      fmt::format("bytes {} to {} of {} were {}", begin, end, layout.files[static_cast<size_t>(file)].name, how));
}

int64_t block_of(const SummedRange& range) {
  return range.begin / block_bytes;
}

bool same_block(const SummedRange& a, const SummedRange& b) {
  return a.file == b.file && block_of(a) == block_of(b);
}

}  // namespace

uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

Result<std::vector<SummedRange>> merge(const FolderLayout& layout, std::vector<SummedRange> ranges) {
  std::erase_if(ranges, [](const SummedRange& range) { return range.bytes == 0; });
  std::ranges::sort(ranges, {}, [](const SummedRange& r) { return std::tuple(r.file, r.begin, r.bytes); });
  std::vector<SummedRange> out;
  for (const SummedRange& range : ranges) {
    const int64_t end = range.begin + range.bytes;
    invariant(range.file >= 0 && range.file < std::ssize(layout.files), "sums are of files of the layout");
    invariant(end <= layout.files[static_cast<size_t>(range.file)].bytes, "sums are of bytes of the file");
    invariant((end - 1) / block_bytes == block_of(range), "a sum is of bytes of one block");
    SummedRange* last = out.empty() || out.back().file != range.file ? nullptr : &out.back();
    const int64_t last_end = last ? last->begin + last->bytes : 0;
    if (last && last_end > range.begin)
      return badly_written(layout, range.file, range.begin, std::min(last_end, end), "written twice");
    if (last && last_end == range.begin && same_block(*last, range)) {
      last->crc = static_cast<uint32_t>(crc32_combine(last->crc, range.crc, range.bytes));
      last->bytes += range.bytes;
    } else {
      out.push_back(range);
    }
  }
  return out;
}

Result<std::vector<BlockSums>> join(const FolderLayout& layout, std::vector<SummedRange> ranges) {
  PIPER_TRY(const std::vector<SummedRange> merged, merge(layout, std::move(ranges)));
  std::vector<BlockSums> out(layout.files.size());
  auto next = merged.begin();
  for (int file = 0; file < std::ssize(layout.files); ++file) {
    const int64_t bytes = layout.files[static_cast<size_t>(file)].bytes;
    for (int64_t at = 0; at < bytes;) {
      const int64_t end = std::min(bytes, at + block_bytes);
      const bool here = next != merged.end() && next->file == file && next->begin < end;
      if (!here || next->begin > at) return badly_written(layout, file, at, here ? next->begin : end, "not written");
      if (next->bytes < end - at) return badly_written(layout, file, at + next->bytes, end, "not written");
      out[static_cast<size_t>(file)].push_back(next->crc);
      ++next;
      at = end;
    }
  }
  return out;
}

}  // namespace piper
