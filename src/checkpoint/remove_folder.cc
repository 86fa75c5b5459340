#include "checkpoint/remove_folder.h"

#include <filesystem>

#include "checkpoint/problems.h"

namespace piper {

Checked remove_folder(const std::string& path) {
  std::error_code problem;
  std::filesystem::remove_all(path, problem);
  return problem ? Checked(cannot_write(path, problem.value())) : Ok{};
}

}  // namespace piper
