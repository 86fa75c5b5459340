#include "base/write_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace piper {

Checked write_file(const std::string& path, std::string_view text) {
  const auto failed = [&]() -> Diagnostic {
    return error(ErrorCode::E108, {}, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  };
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return failed();
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (!whole) {
    auto problem = failed();
    std::fclose(file);
    return problem;
  }
  if (std::fclose(file) != 0) return failed();
  return Ok{};
}

}  // namespace piper
