#include "tools/become.h"

#include <unistd.h>

namespace piper {

std::filesystem::path own_program() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/exe", none);
}

void become(const std::string& program, const std::vector<std::string>& words) {
  std::vector<char*> raw;
  for (const std::string& word : words) raw.push_back(const_cast<char*>(word.c_str()));
  raw.push_back(nullptr);
  execvp(program.c_str(), raw.data());
}

}  // namespace piper
