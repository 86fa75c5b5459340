#include "base/read_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace piper {

Result<SourceFilePtr> read_file(const std::string& path, std::string_view what) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in && in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  if (in.is_open() && !in.bad() && errno == 0) return make_source(path, std::move(text).str());
  return error(
      ErrorCode::E108, {},
      fmt::format("cannot read {} \"{}\": {}", what, path, errno != 0 ? std::strerror(errno) : "unknown reason"));
}

}  // namespace piper
