#include "base/usual_python.h"

#include <cstdlib>

namespace piper {

std::string python_of_environment(const std::filesystem::path& program) {
  const std::filesystem::path folder = program.parent_path();
  // auditwheel puts programs into lib/python3.11/site-packages/piper_training.scripts
  const bool among_packages = folder.extension() == ".scripts";
  const std::filesystem::path python = folder / (among_packages ? "../../../../bin/python3" : "python3");
  std::error_code none;
  return std::filesystem::exists(python, none) ? python.lexically_normal().string() : "";
}

std::string usual_python() {
  if (const char* const named = std::getenv("PIPER_PYTHON"); named && *named) return named;
  std::error_code none;
  const std::string installed = python_of_environment(std::filesystem::read_symlink("/proc/self/exe", none));
  if (!installed.empty()) return installed;
  return std::filesystem::exists(PIPER_BUILT_WITH) ? PIPER_BUILT_WITH : "python3";
}

}  // namespace piper
