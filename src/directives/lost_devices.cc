#include "directives/lost_devices.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace piper {
namespace {

/// Devices that differ by one in this coordinate are so far apart in the group.
int stride_of(const DeviceGroup& group, size_t axis) {
  int stride = 1;
  for (size_t a = axis + 1; a < group.axes.size(); ++a) stride *= group.axes[a].size;
  return stride;
}

}  // namespace

bool has_lost(const DeviceGroup& group, const DeviceList& lost) {
  return std::ranges::any_of(group.devices, [&](int device) { return std::ranges::binary_search(lost, device); });
}

std::vector<int> coordinates_left(const DeviceGroup& group, size_t axis, const DeviceList& lost) {
  const int stride = stride_of(group, axis), size = group.axes[axis].size;
  std::vector<char> left(static_cast<size_t>(size), 1);
  for (int i = 0; i < group.size(); ++i)
    if (std::ranges::binary_search(lost, group.devices[static_cast<size_t>(i)]))
      left[static_cast<size_t>(i / stride % size)] = 0;
  std::vector<int> out;
  for (int c = 0; c < size; ++c)
    if (left[static_cast<size_t>(c)]) out.push_back(c);
  return out;
}

std::vector<DeviceGroup> groups_left(const DeviceGroup& group, size_t axis, const std::vector<int>& coordinates,
                                     int count) {
  const int stride = stride_of(group, axis), size = group.axes[axis].size;
  std::vector<DeviceGroup> out(coordinates.size() / static_cast<size_t>(count), DeviceGroup{{}, group.axes});
  std::vector<int> goes_to(static_cast<size_t>(size), -1);
  for (size_t i = 0; i < out.size() * static_cast<size_t>(count); ++i)
    goes_to[static_cast<size_t>(coordinates[i])] = static_cast<int>(i) / count;
  for (int i = 0; i < group.size(); ++i)
    if (const int to = goes_to[static_cast<size_t>(i / stride % size)]; to >= 0)
      out[static_cast<size_t>(to)].devices.push_back(group.devices[static_cast<size_t>(i)]);
  for (DeviceGroup& part : out) part.axes[axis].size = count;
  return out;
}

std::vector<std::vector<GroupId>> placements_together(const TrainingDag& dag) {
  std::vector<size_t> root(dag.groups.group_count());
  std::iota(root.begin(), root.end(), size_t{0});
  const auto find = [&](size_t g) {
    while (root[g] != g) g = root[g] = root[root[g]];
    return g;
  };
  std::vector<GroupId> first(dag.model->chunks.size());
  std::set<GroupId> used;
  for (const Node& node : dag.nodes) {
    if (!is_compute(node) || !node.group.valid()) continue;
    used.insert(node.group);
    GroupId& other = first[node.tags.chunk.index()];
    if (!other.valid()) other = node.group;
    const size_t a = find(other.index()), b = find(node.group.index());
    root[std::max(a, b)] = std::min(a, b);
  }
  std::map<size_t, std::vector<GroupId>> sets;
  for (const GroupId group : used) sets[find(group.index())].push_back(group);
  std::vector<std::vector<GroupId>> out;
  for (auto& [smallest, set] : sets) out.push_back(std::move(set));
  return out;
}

}  // namespace piper
