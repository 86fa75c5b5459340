// What `piper` does for commands that need libtorch: it becomes `piper-train`, the same program with them in it, so
// that all other commands start at once and work where there is no libtorch.
#include <nlohmann/json.hpp>

#include "tools/become.h"
#include "tools/commands.h"
#include "tools/doctor_command.h"
#include "tools/train_command.h"
#include "train/run_problems.h"

namespace piper {
namespace {

std::string training_program() {
  return (own_program().parent_path() / "piper-train").string();
}

int start_training(const TrainInput& input) {
  become(training_program(), input.command_line);
  return report_text(built_without_libtorch(), input.color);  // there is none
}

}  // namespace

Result<TrainingAnswer> ask_training(const CheckCommand& command, const LoadedInput&) {
  return TrainingAnswer{std::nullopt, std::nullopt, !is_configuration(command.input)};
}
void ask_with_libtorch(const CheckCommand& command) {
  if (is_configuration(command.input)) become(training_program(), command.command_line);
}

int run(const TrainCommand& command) {
  return start_training(command.input);
}
int run(const DiffCommand& command) {
  return start_training(command.input);
}
int run(const ProfileCommand& command) {
  return start_training(command.input);
}
int run(const KernelsBuildCommand& command) {
  return start_training(command.input);
}

int run(const DoctorCommand& command) {
  if (!command.hosts.empty()) return launch_doctor(command);
  become(training_program(), command.command_line);
  put(print_doctor({examine_host({})}, {}, command.format));  // there is none
  return fine;
}

}  // namespace piper
