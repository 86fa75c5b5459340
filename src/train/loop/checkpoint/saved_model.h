// All tensors of a run's checkpoints, and their places in the files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/loop/checkpoint/model_state.h"
#include "train/loop/training_run.h"

namespace piper {

/// What is saved besides parameters of the plan, and how.
struct SaveForm {
  std::vector<SavedName> names;                                 // parameters and buffers, in the order of the files
  std::map<std::string, at::Tensor> constants = {};             // values of those that no step uses or writes
  std::vector<std::pair<std::string, std::string>> texts = {};  // further files, by name
  int64_t shard_size = default_shard_size;
};

/// A buffer of the module that passes write: that of the device that has seen the earliest samples.
struct SavedBuffer {
  std::string name;
  StoredTensor stored;
  int writer = 0;  // rank of the process
};

struct SavedConstant {
  StoredTensor stored;
  at::Tensor value;  // the module's own
};

struct SavedModel {
  ModelState state;
  std::vector<SavedBuffer> buffers;
  std::vector<SavedConstant> constants;  // written by rank 0
  std::shared_ptr<const FolderLayout> layout;
};

/// After `TrainingRun::begin`; all processes call it. E903: a name twice.
Result<SavedModel> saved_model(TrainingRun& run, const SaveForm& form);

}  // namespace piper
