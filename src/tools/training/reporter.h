// Takes a run in this process to its end and reports it: the only one, or one of several, of which rank 0 speaks.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "tools/train_command.h"
#include "tools/training/ending.h"
#include "tools/training/load_training.h"
#include "tools/training/recovery.h"
#include "tools/training/run_checkpoints.h"
#include "train/loop/protect/state_keeper.h"
#include "train/progress.h"

namespace piper {

class Reporter {
 public:
  /// `world`: none: this process is alone. All outlive it.
  Reporter(const TrainCommand& command, const LoadedTraining& loaded, Training& training, World* world,
           Recovery& recovery);

  Ending run();

 private:
  Ending begin_and_take_steps();
  Result<bool> go_on();
  void say_phases();
  bool goes_on_after(const RunError& problem);
  Ending failed(const RunError& problem);
  /// A refusal that all processes know, and rank 0 says.
  Ending refusal(const Diagnostic& why, int code);

  Checked initialize();
  int prepare_files(bool goes_on);
  /// `again`: others were lost, and it goes on.
  int take_steps(bool again);
  Checked evaluate(ProgressLine& progress);
  int finish();
  int64_t wanted() const { return config_.run.steps; }

  bool keeps_record() const { return world_ && metrics_file_; }
  std::string record_name() const;
  void leave_record(const std::string& reason);

  const LoadedTraining& loaded_;
  const TrainConfig& config_;
  Training& training_;
  TrainingRun& run_;
  World* const world_;
  Recovery& recovery_;
  RunReport& report_;
  const bool speaks_, color_;
  const std::string resume_;
  const std::string trace_;
  const std::optional<NamedFile> metrics_file_;
  std::mutex recording_;
  std::optional<RunCheckpoints> checkpoints_;
  std::optional<StateKeeper> keeper_;
  StepMetrics last_;    // step
  int stopped_by_ = 0;  // a signal, here or in another process
};

}  // namespace piper
