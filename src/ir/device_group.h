// Groups of devices that run a node together, and how a group is divided into parts.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/device_list.h"
#include "base/shared_ids.h"
#include "schedule/schedule.h"

namespace piper {

/// An ordered list of devices, seen as a product of axes (last axis fastest). A group without names has one axis "".
/// The position of a device in the list says which slice of every microbatch it gets.
struct DeviceGroup {
  DeviceList devices;
  std::vector<MeshAxis> axes;

  int size() const { return static_cast<int>(devices.size()); }
  friend bool operator==(const DeviceGroup&, const DeviceGroup&) = default;
};

/// A group divided into parts of equal size; a collective runs inside each part. `members` lists part after part.
struct Partition {
  GroupId group;
  int part_size = 1;
  DeviceList members;

  int parts() const { return static_cast<int>(members.size()) / part_size; }
  friend bool operator==(const Partition&, const Partition&) = default;
};

/// All groups and partitions of a DAG, each stored once.
class GroupTable {
 public:
  GroupId intern(DeviceGroup group);
  PartitionId intern(Partition partition);

  const DeviceGroup& operator[](GroupId id) const { return groups_[id.index()]; }
  const Partition& operator[](PartitionId id) const { return partitions_[id.index()]; }
  size_t group_count() const { return groups_.size(); }
  size_t partition_count() const { return partitions_.size(); }

  /// The whole group as one part.
  PartitionId whole(GroupId group);
  /// Parts along these axes of the group: devices whose other coordinates agree. The axes must exist.
  PartitionId along(GroupId group, const std::vector<std::string>& axes);
  /// Devices at the same position of their parts: the other way to divide the same group.
  PartitionId across(PartitionId partition);
  /// Parts that join those of `inner` which meet a part of `outer`, one after another. Nothing if the two do not divide
  /// the group as rows and columns do.
  std::optional<PartitionId> grid(PartitionId outer, PartitionId inner);
  /// Divides every part into `ways` parts: devices whose positions in the group are equal modulo `ways`.
  PartitionId apart(PartitionId partition, int ways);

  friend bool operator==(const GroupTable&, const GroupTable&) = default;

 private:
  std::vector<DeviceGroup> groups_;
  std::vector<Partition> partitions_;
  std::multimap<size_t, GroupId> group_index_;
  std::multimap<size_t, PartitionId> partition_index_;
};

}  // namespace piper
