// From what a directive says about devices to groups and partitions.
#pragma once

#include "base/result.h"
#include "ir/training_dag.h"

namespace piper {

/// A second devices or mesh (E207), with a note at the first.
Diagnostic declared_twice(const TrainingDag& dag, DirectiveId by);

/// The devices exist and stand once in every list (E205).
Checked check_devices(const TrainingDag& dag, const DeviceChoice& choice, DirectiveId by);

/// The devices of the mesh at these coordinates, with the axes that are left (E207, E208, E205).
Result<DeviceGroup> mesh_slab(const TrainingDag& dag, const Filter& coordinates);

/// How the choice cuts a group: along its axes, or by lists that together make the group (E208, E212).
Result<PartitionId> partition_of(TrainingDag& dag, GroupId group, const DeviceChoice& choice, DirectiveId by);

}  // namespace piper
