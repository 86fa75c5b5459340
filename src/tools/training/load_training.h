// What `piper train` and `piper profile` read, and how they report.
#pragma once

#include <optional>

#include "cost/cluster.h"
#include "runtime/stream/failure.h"
#include "schedule/schedule.h"
#include "tools/train_command.h"
#include "train/config.h"
#include "train/loop/training.h"

namespace piper {

struct LoadedTraining {
  SourceFilePtr file;
  TrainConfig config;
  std::string schedule_path;  // empty: none is given
  std::optional<Schedule> schedule;
  std::string emulate_path;  // or the name of a shipped cluster
  std::optional<Cluster> emulate;
};

/// The configuration, with what the command line says instead.
Result<LoadedTraining> load(const TrainInput& input);

/// What compiles the chunks of a run and says so on stderr; none: nothing does. `speaker` begins every line, if there
/// are several.
std::shared_ptr<KernelStore> kernels_of(const TrainInput& input, const std::string& speaker = "");

/// Since any moment.
double seconds_now();

/// What cannot be written is a failure of the run, not of its input.
int report_unwritable(const Diagnostic& problem, bool color);
/// Says what went wrong and what the devices did last.
int report_failure(Training& training, const RunError& problem, bool color);
/// Threads that never come back are left behind, by ending the program.
void end_if_stuck(Training& training);

}  // namespace piper
