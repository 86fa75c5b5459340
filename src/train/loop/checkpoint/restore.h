// Reads a checkpoint into the devices of this process: each what it holds, whatever the plan.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "train/loop/checkpoint/saved_model.h"

namespace piper {

/// E904: what is wrong, and the first of these lines.
Diagnostic does_not_fit(const std::string& what, std::vector<std::string> lines);

/// A device reads the elements of a tensor that it holds, and no others; of another element type they are converted.
/// E902: damaged.
Checked read_tensor(const FolderReader& folder, const StateTensor& tensor, TrainingRun& run, DeviceRun& device);
/// All devices of this process, in parallel.
Checked read_tensors(const FolderReader& folder, const std::vector<const StateTensor*>& tensors, TrainingRun& run);

/// Parameters, what the optimizer keeps, buffers, the constants in the module itself, and how far the run is.
/// E905: a run with another seed, or the step is in the middle of an update. E904: names, types or shapes are not those
/// of the model: all that do not fit. Then nothing has changed. E902: damaged; what the devices hold is undefined then.
Checked restore(const FolderReader& folder, const SavedModel& saved, TrainingRun& run);

struct Resumed {
  std::string folder;
  std::vector<Diagnostic> left_out;  // newer ones that are damaged
};
/// `folder`: a checkpoint; or a folder of checkpoints, of which it is the newest that is not damaged, and nothing if
/// there are none. `attempt` takes what it wants of it. All processes call it and come to the same end. E901, E902:
/// damaged, or no checkpoint; or what `attempt` refuses.
Result<std::optional<Resumed>> resume(TrainingRun& run, const std::string& folder,
                                      const std::function<Checked(const FolderReader&)>& attempt);

}  // namespace piper
