// A model folder for others out of a checkpoint.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/reader.h"

namespace piper {

/// The files of the model and texts beside them, without those of the optimizer and piper.json, in the new folder `to`.
/// They share their bytes with the checkpoint where the file system can do that (reflinks, else hard links). E903: `to`
/// is there and not empty, or cannot be written.
Checked export_model(const FolderReader& checkpoint, const std::string& to);

}  // namespace piper
