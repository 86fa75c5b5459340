#include "tools/train_command.h"

#include "tools/commands.h"
#include "train/run_problems.h"

namespace piper {

int run(const TrainCommand& command) {
  return report_text(built_without_libtorch(), command.input.color);
}
int run(const ProfileCommand& command) {
  return report_text(built_without_libtorch(), command.input.color);
}

}  // namespace piper
