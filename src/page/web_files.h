// The files of web/, which CMake puts into the program.
#pragma once

#include <span>
#include <string_view>

namespace piper {

struct WebFile {
  std::string_view name, text;
};
std::span<const WebFile> web_files();

}  // namespace piper
