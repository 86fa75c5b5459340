#include "ir/device_classes.h"

#include <map>

namespace piper {

DeviceClasses device_classes(const TrainingDag& dag) {
  std::vector<char> used(dag.groups.group_count(), 0);
  for (const Node& node : dag.nodes) {
    if (node.group.valid()) used[node.group.index()] = 1;
    if (const auto* transfer = std::get_if<Transfer>(&node.op)) used[transfer->from.index()] = 1;
  }
  for (const Bucket& bucket : dag.buckets)
    for (const Holder& holder : bucket.holders) used[holder.group.index()] = 1;
  // refine: devices stay together as long as every group has both or neither
  std::vector<int> of_device(static_cast<size_t>(dag.devices), 0);
  int next = 1;
  for (size_t g = 0; g < used.size(); ++g) {
    if (!used[g]) continue;
    std::map<int, int> renamed;
    for (const int device : dag.groups[GroupId(g)].devices) {
      int& c = of_device[static_cast<size_t>(device)];
      const auto [found, fresh] = renamed.emplace(c, next);
      if (fresh) ++next;
      c = found->second;
    }
  }
  DeviceClasses out;
  std::map<int, int> number;
  for (int device = 0; device < dag.devices; ++device) {
    const int c = of_device[static_cast<size_t>(device)];
    if (c == 0) continue;
    const auto [found, fresh] = number.emplace(c, static_cast<int>(out.members_.size()));
    if (fresh) out.members_.emplace_back();
    out.members_[static_cast<size_t>(found->second)].push_back(device);
  }
  out.of_group_.resize(dag.groups.group_count());
  for (size_t g = 0; g < used.size(); ++g) {
    if (!used[g]) continue;
    std::vector<char> seen(out.members_.size(), 0);
    for (const int device : dag.groups[GroupId(g)].devices) {
      const int c = number.at(of_device[static_cast<size_t>(device)]);
      if (!seen[static_cast<size_t>(c)]) out.of_group_[g].push_back(c);
      seen[static_cast<size_t>(c)] = 1;
    }
  }
  return out;
}

}  // namespace piper
