#include "base/usual_python.h"

#include <cstdlib>
#include <filesystem>

namespace piper {

std::string usual_python() {
  if (const char* const named = std::getenv("PIPER_PYTHON"); named && *named) return named;
  return std::filesystem::exists(PIPER_BUILT_WITH) ? PIPER_BUILT_WITH : "python3";
}

}  // namespace piper
