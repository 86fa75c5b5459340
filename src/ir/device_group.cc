#include "ir/device_group.h"

#include <algorithm>

#include "base/hash.h"
#include "base/invariant.h"

namespace piper {
namespace {

size_t hash_of(const DeviceList& devices, size_t salt) {
  StableHash hash;
  hash.add(salt);
  for (const int d : devices) hash.add(static_cast<uint64_t>(d));
  return hash.value();
}

template <class AnyId, class T>
AnyId intern_in(std::vector<T>& items, std::multimap<size_t, AnyId>& index, size_t hash, T item) {
  const auto [first, last] = index.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (items[it->second.index()] == item) return it->second;
  items.push_back(std::move(item));
  const AnyId id(items.size() - 1);
  index.emplace(hash, id);
  return id;
}

}  // namespace

GroupId GroupTable::intern(DeviceGroup group) {
  const size_t hash = hash_of(group.devices, group.axes.size());
  return intern_in(groups_, group_index_, hash, std::move(group));
}

PartitionId GroupTable::intern(Partition partition) {
  const size_t hash = hash_of(partition.members, static_cast<size_t>(partition.part_size));
  return intern_in(partitions_, partition_index_, hash, std::move(partition));
}

PartitionId GroupTable::whole(GroupId id) {
  const DeviceGroup& group = groups_[id.index()];
  return intern(Partition{id, group.size(), group.devices});
}

PartitionId GroupTable::along(GroupId id, const std::vector<std::string>& names) {
  const DeviceGroup& group = groups_[id.index()];
  // stable order by the coordinates that stay fixed inside a part
  std::vector<std::pair<int, int>> keyed;  // (fixed coordinates, position)
  int part_size = 1;
  for (const MeshAxis& axis : group.axes)
    if (std::find(names.begin(), names.end(), axis.name) != names.end()) part_size *= axis.size;
  for (int position = 0; position < group.size(); ++position) {
    int rest = position, fixed = 0, weight = 1;
    for (auto axis = group.axes.rbegin(); axis != group.axes.rend(); ++axis) {
      const int coordinate = rest % axis->size;
      rest /= axis->size;
      if (std::find(names.begin(), names.end(), axis->name) != names.end()) continue;
      fixed += coordinate * weight;
      weight *= axis->size;
    }
    keyed.emplace_back(fixed, position);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Partition partition{id, part_size, {}};
  for (const auto& [fixed, position] : keyed) partition.members.push_back(group.devices[static_cast<size_t>(position)]);
  return intern(std::move(partition));
}

PartitionId GroupTable::across(PartitionId id) {
  const Partition& from = partitions_[id.index()];
  Partition out{from.group, from.parts(), {}};
  for (int position = 0; position < from.part_size; ++position)
    for (int part = 0; part < from.parts(); ++part)
      out.members.push_back(from.members[static_cast<size_t>(part * from.part_size + position)]);
  return intern(std::move(out));
}

PartitionId GroupTable::apart(PartitionId id, int ways) {
  if (ways == 1) return id;
  const Partition& from = partitions_[id.index()];
  const DeviceList& devices = groups_[from.group.index()].devices;
  std::map<int, int> remainder;
  for (size_t position = 0; position < devices.size(); ++position)
    remainder[devices[position]] = static_cast<int>(position) % ways;
  Partition out{from.group, from.part_size / ways, {}};
  for (int part = 0; part < from.parts(); ++part)
    for (int way = 0; way < ways; ++way)
      for (int i = part * from.part_size; i < (part + 1) * from.part_size; ++i)
        if (const int device = from.members[static_cast<size_t>(i)]; remainder[device] == way)
          out.members.push_back(device);
  return intern(std::move(out));
}

}  // namespace piper
