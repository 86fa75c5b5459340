// What `piper` does for commands that need libtorch: it becomes `piper-train`, the same program with them in it, so
// that all other commands start at once and work where there is no libtorch.
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "tools/commands.h"
#include "tools/train_command.h"
#include "train/run_problems.h"

namespace piper {
namespace {

int start_training(const TrainInput& input) {
  std::error_code none;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", none);
  const std::string program = (self.parent_path() / "piper-train").string();
  std::vector<char*> words;
  for (const std::string& word : input.command_line) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  return report_text(built_without_libtorch(), input.color);  // there is none
}

}  // namespace

int run(const TrainCommand& command) {
  return start_training(command.input);
}
int run(const ProfileCommand& command) {
  return start_training(command.input);
}

}  // namespace piper
