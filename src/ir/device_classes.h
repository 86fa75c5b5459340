// Devices that belong to the same groups do the same work: one class, one plan. An exception is context parallelism in
// contiguous blocks: under causal attention, devices with later tokens do more.
#pragma once

#include "ir/training_dag.h"

namespace piper {

class DeviceClasses {
 public:
  size_t count() const { return members_.size(); }
  const DeviceList& members(int device_class) const { return members_[static_cast<size_t>(device_class)]; }
  const std::vector<int>& of_group(GroupId group) const { return of_group_[group.index()]; }

 private:
  friend DeviceClasses device_classes(const TrainingDag& dag);
  std::vector<DeviceList> members_;
  std::vector<std::vector<int>> of_group_;
};

/// Classes of all devices that do anything, in order of their first device.
DeviceClasses device_classes(const TrainingDag& dag);

}  // namespace piper
