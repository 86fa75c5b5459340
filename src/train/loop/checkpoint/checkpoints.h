// Saves a run while it continues: devices are copied between two steps, a thread writes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/writer.h"
#include "train/loop/checkpoint/saved_model.h"
#include "train/loop/checkpoint/snapshot.h"
#include "train/loop/checkpoint/write_state.h"
#include "train/loop/training_run.h"

namespace piper {

struct CheckpointOptions {
  std::string folder;      // that has the folders of all steps
  int64_t keep = 0;        // the newest so many stay; 0: all
  int64_t keep_every = 0;  // steps that are multiples stay for good; 0: none
  friend bool operator==(const CheckpointOptions&, const CheckpointOptions&) = default;
};

/// How a save went.
struct SaveReport {
  int64_t step = 0;
  Checked result = Ok{};
  double blocked = 0;  // seconds in which the devices were copied
  double seconds = 0;  // until it was on the disk
  // only at rank 0:
  WriteCounts written;  // by all processes
  int64_t copies = 0;   // bytes of the copies in a process, the most of all
};

class Checkpoints {
 public:
  /// All processes make it, and call its members in the same order. Takes the memory of the copies; E808 everywhere if
  /// it is not there in one of them. The run outlives it.
  static Result<std::unique_ptr<Checkpoints>> make(TrainingRun& run, SavedModel saved, CheckpointOptions options);
  /// Waits for what is being written.
  ~Checkpoints();

  /// After a step. Waits for the save before it, if that is still being written.
  void save(RunState state);
  /// Waits until everything is on the disk.
  void wait();
  /// Of saves that have ended since the last call.
  std::vector<SaveReport> take_reports();

  const CheckpointOptions& options() const { return options_; }

 private:
  Checkpoints(TrainingRun& run, SavedModel saved, CheckpointOptions options);
  void take_memory();
  int64_t copied_bytes() const;
  /// What this process has; the sums of it.
  Result<std::vector<SummedRange>> write_files(FolderWriter& files);
  Checked write_together(const RunState& state, SaveReport& report);

  TrainingRun& run_;
  const CheckpointOptions options_;
  const SavedModel saved_;
  std::optional<Snapshot> snapshot_;
  std::vector<at::Tensor> buffers_;  // copies of those that this process writes
  Writers writers_;
  std::jthread writing_;
  SaveReport current_;
  std::vector<SaveReport> reports_;
};

}  // namespace piper
