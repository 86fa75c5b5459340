#include "ir/device_group.h"

#include <algorithm>
#include <set>

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
  const auto is_along = [&](const MeshAxis& axis) {
    return std::find(names.begin(), names.end(), axis.name) != names.end();
  };
  int part_size = 1;
  std::vector<std::pair<int, int>> axes;  // innermost first: size, and weight in the number of the part
  for (auto axis = group.axes.rbegin(); axis != group.axes.rend(); ++axis) {
    axes.emplace_back(axis->size, 0);
    if (is_along(*axis)) part_size *= axis->size;
  }
  for (size_t i = 0, weight = 1; i < axes.size(); ++i)
    if (!is_along(group.axes[axes.size() - 1 - i])) {
      axes[i].second = static_cast<int>(weight);
      weight *= static_cast<size_t>(axes[i].first);
    }
  Partition partition{id, part_size, DeviceList(group.devices.size())};
  std::vector<int> filled(group.devices.size() / static_cast<size_t>(part_size), 0);  // by part
  for (int position = 0; position < group.size(); ++position) {
    int rest = position, part = 0;
    for (const auto& [size, weight] : axes) {
      part += rest % size * weight;
      rest /= size;
    }
    const int place = part * part_size + filled[static_cast<size_t>(part)]++;
    partition.members[static_cast<size_t>(place)] = group.devices[static_cast<size_t>(position)];
  }
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

std::optional<PartitionId> GroupTable::grid(PartitionId outer_id, PartitionId inner_id) {
  const Partition &outer = partitions_[outer_id.index()], &inner = partitions_[inner_id.index()];
  std::map<int, int> place;  // by device: where it stands in `inner`
  for (size_t i = 0; i < inner.members.size(); ++i) place[inner.members[i]] = static_cast<int>(i);
  std::map<std::vector<int>, int> rows;  // by the parts of `inner` that a part of `outer` goes through: how many do
  Partition out{outer.group, outer.part_size * inner.part_size, {}};
  for (int part = 0; part < outer.parts(); ++part) {
    std::vector<int> through;
    const int column = place[outer.members[static_cast<size_t>(part * outer.part_size)]] % inner.part_size;
    for (int i = part * outer.part_size; i < (part + 1) * outer.part_size; ++i) {
      const int at = place[outer.members[static_cast<size_t>(i)]];
      if (at % inner.part_size != column) return std::nullopt;
      through.push_back(at / inner.part_size);
    }
    if (std::set<int>(through.begin(), through.end()).size() != through.size()) return std::nullopt;
    if (rows[through]++ > 0) continue;
    for (const int row : through) {
      const auto first = inner.members.begin() + row * inner.part_size;
      out.members.insert(out.members.end(), first, first + inner.part_size);
    }
  }
  for (const auto& [through, count] : rows)
    if (count != inner.part_size) return std::nullopt;
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
