#include "base/write_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/files_in_use.h"

namespace piper {
namespace {

Diagnostic cannot_write(const std::string& path, int reason) {
  return error(ErrorCode::E108, {}, fmt::format("cannot write {}: {}", path, std::strerror(reason)))
      .help(reason == ENOENT   ? "make its folder first"
            : reason == ENOSPC ? "free some space, or name a file on another disk"
                               : "");
}

}  // namespace

Checked write_file(const std::string& path, std::string_view text) {
  PIPER_CHECK(check_not_in_use(path));
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return cannot_write(path, errno);
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (!whole) {
    const int reason = errno;
    std::fclose(file);
    return cannot_write(path, reason);
  }
  if (std::fclose(file) != 0) return cannot_write(path, errno);
  return Ok{};
}

Checked check_writable(const std::string& path) {
  PIPER_CHECK(check_not_in_use(path));
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (!file) return cannot_write(path, errno);
  std::fclose(file);
  return Ok{};
}

}  // namespace piper
