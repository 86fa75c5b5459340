// Where the elements of a shard lie in the whole parameter.
#pragma once

#include "plan/bucket_part.h"
#include "runtime/computation.h"

namespace piper {

/// Elements that are contiguous in the whole parameter, and in the shard.
struct ElementRun {
  int64_t whole = 0, shard = 0, count = 0;
  friend bool operator==(const ElementRun&, const ElementRun&) = default;
};

/// All runs of elements `range` of the shard that a device has, in order. A shard along the first dimension is one run;
/// one along an inner dimension is a run for every row.
std::vector<ElementRun> element_runs(const ParameterForm& form, const LocalShards& shards, ElementRange range);

}  // namespace piper
