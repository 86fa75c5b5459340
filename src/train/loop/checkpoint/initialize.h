// Begins a run with weights of others: a folder of transformers, or a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "models/build_model.h"
#include "train/loop/training_run.h"

namespace piper {

/// Before the first step: every device reads the weights that it holds; the optimizer begins with them. What is worth
/// knowing about it, a line each: conversions of element types, tensors that were not used. E904: tensors are missing
/// or have other shapes, or config.json says that the model computes something else; E901, E902: the folder cannot be
/// read.
Result<std::vector<std::string>> initialize_from(const std::string& folder, const TrainableModel& model,
                                                 TrainingRun& run);

}  // namespace piper
