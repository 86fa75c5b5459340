#include "ir/device_classes.h"

#include <map>

#include "ir/local_size.h"

namespace piper {
namespace {

/// Devices fall into new classes by an old one and a key, which `next` numbers.
class Refinement {
 public:
  explicit Refinement(int& next) : next_(next) {}
  void refine(int& device_class, int key) {
    const auto [found, fresh] = renamed_.emplace(std::pair(device_class, key), next_);
    if (fresh) ++next_;
    device_class = found->second;
  }

 private:
  int& next_;
  std::map<std::pair<int, int>, int> renamed_;
};

}  // namespace

DeviceClasses device_classes(const TrainingDag& dag) {
  std::vector<char> used(dag.groups.group_count(), 0);
  for (const Node& node : dag.nodes) {
    if (node.group.valid()) used[node.group.index()] = 1;
    if (const auto* transfer = std::get_if<Transfer>(&node.op)) used[transfer->from.index()] = 1;
  }
  for (const Bucket& bucket : dag.buckets)
    for (const Holder& holder : bucket.holders) used[holder.group.index()] = 1;
  const bool uneven = has_uneven_attention(dag);
  // refine: devices stay together as long as every group has both or neither
  std::vector<int> of_device(static_cast<size_t>(dag.devices), 0);
  int next = 1;
  for (size_t g = 0; g < used.size(); ++g) {
    if (!used[g]) continue;
    Refinement refinement(next);
    const DeviceList& devices = dag.groups[GroupId(g)].devices;
    for (size_t i = 0; i < devices.size(); ++i)
      refinement.refine(of_device[static_cast<size_t>(devices[i])], uneven ? token_shard(dag, static_cast<int>(i)) : 0);
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
