// Ids that a DAG and the plan made from it share: their tables have the same numbers.
#pragma once

#include "base/id.h"

namespace piper {

using GroupId = Id<struct GroupTag>;
using PartitionId = Id<struct PartitionTag>;
using BucketId = Id<struct BucketTag>;
using DirectiveId = Id<struct DirectiveTag>;

}  // namespace piper
