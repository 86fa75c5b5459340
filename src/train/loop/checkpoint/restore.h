// Reads a checkpoint into the devices of this process: each what it holds, whatever the plan.
#pragma once

#include "checkpoint/reader.h"
#include "runtime/job.h"
#include "train/loop/checkpoint/model_state.h"

namespace piper {

/// The checkpoint has every tensor of the state, with its dtype and sizes, and no others. E904: the names of all that
/// do not fit.
Checked check_fits(const FolderReader& folder, const ModelState& state, const std::vector<StoredTensor>& buffers);

/// Weights and what the optimiser keeps. E902: damaged.
Checked restore(const FolderReader& folder, const ModelState& state, Job& job, const Computations& computations);

}  // namespace piper
