#include "base/read_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace piper {

Result<SourceFilePtr> read_file(const std::string& path, std::string_view what, size_t largest) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  for (std::string block(1 << 16, '\0'); in && text.size() <= largest;) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block, 0, static_cast<size_t>(in.gcount()));
  }
  if (text.size() > largest)
    return error(ErrorCode::E113, {}, fmt::format("{} \"{}\" has more than {} bytes", what, path, largest));
  if (in.is_open() && !in.bad() && errno == 0) return make_source(path, std::move(text));
  return error(
      ErrorCode::E108, {},
      fmt::format("cannot read {} \"{}\": {}", what, path, errno != 0 ? std::strerror(errno) : "unknown reason"));
}

}  // namespace piper
