// Saves a run while it goes on: devices are copied between two steps, a thread writes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/writer.h"
#include "train/loop/checkpoint/snapshot.h"
#include "train/loop/checkpoint/write_state.h"
#include "train/loop/training_run.h"

namespace piper {

struct CheckpointOptions {
  std::string folder;      // that has the folders of all steps
  int64_t keep = 0;        // the newest so many stay; 0: all
  int64_t keep_every = 0;  // steps that are multiples stay for good; 0: none
  int64_t shard_size = default_shard_size;
  std::vector<std::pair<std::string, std::string>> texts = {};  // further files, by name
};

/// How a save went.
struct SaveReport {
  int64_t step = 0;
  Checked result = Ok{};
  double blocked = 0;   // seconds in which the devices were copied
  double seconds = 0;   // until it was on the disk
  WriteCounts written;  // by this process
};

class Checkpoints {
 public:
  /// All processes make it after `TrainingRun::begin`, and call its members in the same order. Takes the memory of the
  /// copies. `names`: parameters and buffers to be saved, in the order of the files. The run outlives it.
  Checkpoints(TrainingRun& run, const std::vector<SavedName>& names, CheckpointOptions options);
  /// Waits for what is being written.
  ~Checkpoints();

  /// After a step. Waits for the save before it, if that is still being written.
  void save(RunState state);
  /// Waits until everything is on the disk.
  void wait();
  /// Of saves that have ended since the last call.
  std::vector<SaveReport> take_reports();

  const ModelState& state() const { return state_; }
  const FolderLayout& layout() const { return *layout_; }
  int64_t host_bytes() const;

 private:
  struct SavedBuffer {
    StoredTensor stored;
    std::string name;
    bool mine = false;  // this process writes it
    at::Tensor copy;
  };
  std::vector<SavedBuffer> find_buffers(const std::vector<SavedName>& names);
  /// What this process has; the sums of it.
  Result<std::vector<SummedRange>> write_files(FolderWriter& files);
  Checked write_together(const RunState& state, SaveReport& report);

  TrainingRun& run_;
  const CheckpointOptions options_;
  ModelState state_;
  std::vector<SavedBuffer> buffers_;
  std::shared_ptr<const FolderLayout> layout_;
  Snapshot snapshot_;
  Writers writers_;
  std::jthread writing_;
  SaveReport current_;
  std::vector<SaveReport> reports_;
};

}  // namespace piper
