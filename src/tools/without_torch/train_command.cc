#include "tools/train_command.h"

#include "tools/commands.h"

namespace piper {
namespace {

int refuse(bool color) {
  return report_text(error(ErrorCode::E804, {}, "this program was built without libtorch, so it cannot train")
                         .help("make build installs libtorch and builds the whole program"),
                     color);
}

}  // namespace

int run(const TrainCommand& command) {
  return refuse(command.input.color);
}
int run(const ProfileCommand& command) {
  return refuse(command.input.color);
}

}  // namespace piper
