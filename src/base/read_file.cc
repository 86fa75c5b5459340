#include "base/read_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace piper {
namespace {

constexpr size_t largest_file = 64u << 20;

}  // namespace

Result<SourceFilePtr> read_file(const std::string& path, std::string_view what) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  for (std::string block(1 << 16, '\0'); in && text.size() <= largest_file;) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block, 0, static_cast<size_t>(in.gcount()));
  }
  if (text.size() > largest_file)
    return error(ErrorCode::E113, {}, fmt::format("{} \"{}\" has more than {} bytes", what, path, largest_file));
  if (in.is_open() && !in.bad() && errno == 0) return make_source(path, std::move(text));
  return error(
      ErrorCode::E108, {},
      fmt::format("cannot read {} \"{}\": {}", what, path, errno != 0 ? std::strerror(errno) : "unknown reason"));
}

}  // namespace piper
