// What `piper` does for commands that need libtorch: it becomes `piper-train`, the same program with them in it, so
// that all other commands start at once and work where there is no libtorch.
#include "tools/become.h"
#include "tools/commands.h"
#include "tools/train_command.h"
#include "train/run_problems.h"

namespace piper {
namespace {

int start_training(const TrainInput& input) {
  become((own_program().parent_path() / "piper-train").string(), input.command_line);
  return report_text(built_without_libtorch(), input.color);  // there is none
}

}  // namespace

int run(const TrainCommand& command) {
  return start_training(command.input);
}
int run(const DiffCommand& command) {
  return start_training(command.input);
}
int run(const ProfileCommand& command) {
  return start_training(command.input);
}

}  // namespace piper
