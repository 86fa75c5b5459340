// Ids of tables that several layers have with the same numbers: a DAG and the plan made from it, a plan and what
// records a run of it.
#pragma once

#include "base/id.h"

namespace piper {

using GroupId = Id<struct GroupTag>;
using PartitionId = Id<struct PartitionTag>;
using BucketId = Id<struct BucketTag>;
using DirectiveId = Id<struct DirectiveTag>;
using OpId = Id<struct OpTag>;  // of the program of one device, in issue order

}  // namespace piper
