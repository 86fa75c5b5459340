// What is left of placements when devices are lost.
#pragma once

#include <vector>

#include "ir/training_dag.h"

namespace piper {

/// The coordinates of an axis of the group at which no device is lost.
std::vector<int> coordinates_left(const DeviceGroup& group, size_t axis, const DeviceList& lost);

/// Of each `count` of these coordinates one group, as many as there are. Its axes are those of the whole group.
std::vector<DeviceGroup> groups_left(const DeviceGroup& group, size_t axis, const std::vector<int>& coordinates,
                                     int count);

/// Groups that computations are placed on, in sets: those that run a chunk for different parts of the batch are
/// together, since a chunk runs on groups of one size.
std::vector<std::vector<GroupId>> placements_together(const TrainingDag& dag);

bool has_lost(const DeviceGroup& group, const DeviceList& lost);

}  // namespace piper
