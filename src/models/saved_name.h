// What tensors of a model are called on disk.
#pragma once

#include <cstdint>
#include <string>

namespace piper {

/// A parameter or buffer, and its name in a checkpoint. Where `parts` is not 0, the checkpoint has a tensor of its own
/// for each index of the first dimension, and this is the one of `part`: experts. `rows_before`: of zeros that it has
/// before those of the parameter.
struct SavedName {
  std::string name, stored;
  int64_t part = 0, parts = 0;
  int64_t rows_before = 0;
  friend bool operator==(const SavedName&, const SavedName&) = default;
};

}  // namespace piper
