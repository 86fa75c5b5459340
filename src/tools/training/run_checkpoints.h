// The checkpoints of a run, as `piper train` was told to make them: when to save, which to resume from, and what is
// printed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "train/checkpoint_config.h"
#include "train/loop/checkpoint/checkpoints.h"
#include "train/loop/training.h"

namespace piper {

/// All processes call its members in the same order; rank 0 speaks.
class RunCheckpoints {
 public:
  /// Without a folder nothing is saved.
  RunCheckpoints(const CheckpointConfig& config, Training& training, bool color);

  /// After `TrainingRun::begin`: takes the memory of the copies. E808.
  Checked begin();

  /// `which`: `newest`, or the folder of a checkpoint. Damaged ones are left out where the newest is wanted; if there
  /// is none at all, the run begins. E901, E902, E904, E905.
  Checked resume(const std::string& which);

  /// By the clock, which differs among processes.
  bool due_by_time() const;
  /// After a step, and what all processes agree on: by the clock it is time.
  void after_step(bool due);
  /// Saves the last step, if it was not, and waits for it. E903: it could not be saved.
  Checked finish();
  /// Waits for what is being written, after the run has failed.
  void wait();

 private:
  const SavedModel& saved();
  void save();
  void report();

  const CheckpointConfig config_;
  Training& training_;
  const bool speaks_, color_;
  std::optional<SavedModel> saved_;  // where something is saved or resumed
  std::unique_ptr<Checkpoints> checkpoints_;
  bool due_ = false;  // asked for, when the weights are next updated
  int64_t saved_step_ = -1;
  double last_time_ = 0;
  int64_t saves_ = 0;
  double blocked_ = 0;
  SaveReport last_;
};

}  // namespace piper
