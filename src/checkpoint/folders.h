// The checkpoints of a run: folders beside each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace piper {

struct CheckpointFolder {
  int64_t step = 0;
  std::string path;

  friend bool operator==(const CheckpointFolder&, const CheckpointFolder&) = default;
};

/// Folders `step-…`, oldest first. What is being written or deleted is not among them, nor is anything else. E901 if
/// there is no such folder; what is in them is not looked at.
Result<std::vector<CheckpointFolder>> list_checkpoints(const std::string& parent);

/// Deletes all but the newest `newest` and those whose step is a multiple of `every` (0: none), and what crashes left
/// behind. Call it while nothing is being written there. Each folder changes its name first: one that is half deleted
/// is never taken for a whole one.
Checked keep(const std::string& parent, int64_t newest, int64_t every);

}  // namespace piper
