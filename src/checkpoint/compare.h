// In what two checkpoints differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/reader.h"

namespace piper {

/// A tensor that both have with the same type and shape, and other bytes.
struct TensorDifference {
  std::string name;
  int64_t elements = 0;           // that differ
  std::optional<double> largest;  // absolute difference, of floats; NaN if one side has a NaN
};

struct TypeDifference {
  StoredTensor first, second;
};

struct FolderDifference {
  std::vector<std::string> only_first, only_second;
  std::vector<TypeDifference> types;
  std::vector<TensorDifference> values;
  int64_t equal = 0;  // tensors

  bool none() const { return only_first.empty() && only_second.empty() && types.empty() && values.empty(); }
};

/// By name, in the order of names. Reads both folders, a piece at a time.
Result<FolderDifference> diff(const FolderReader& first, const FolderReader& second);

}  // namespace piper
