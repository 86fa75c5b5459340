#include <cstdio>
#include <cstdlib>

#include "schedule/load_schedule.h"
#include "tools/commands.h"
#include "tools/train_command.h"
#include "tools/training/load_training.h"
#include "train/loop/diff/diff_training.h"
#include "train/run_problems.h"

namespace piper {

int run(const DiffCommand& command) try {
  const bool color = command.input.color;
  auto loaded = load(command.input);
  if (!loaded) return report(command.format, color, loaded.error());
  DiffRequest request;
  request.schedule = loaded->schedule;
  request.steps = command.input.steps.value_or(2);
  request.options = {command.tolerance, command.find_nan};
  request.threads = command.input.threads;
  if (!command.against.empty()) {
    auto other = load_schedule(command.against);
    if (!other) return report(command.format, color, other.error());
    request.against = std::move(*other);
    request.against_name = command.against;
  }
  auto found = diff_training(loaded->file, loaded->config, request);
  if (!found) return report(command.format, color, found.error());
  put(command.format == "json" ? print_json(*found) : print(*found));
  return found->equal() ? fine : refused;
} catch (const RunError& problem) {
  report(command.format, command.input.color, as_diagnostic(problem));
  std::fflush(stdout);
  std::_Exit(run_failed);  // threads that never come back are left behind
}

}  // namespace piper
