#include "passes/step_scalars.h"

#include <algorithm>

namespace piper {

NodeId add_scalars(TrainingDag& dag) {
  DeviceGroup all;
  for (int device = 0; device < dag.devices; ++device)
    if (!std::ranges::binary_search(dag.lost, device)) all.devices.push_back(device);
  all.axes = {{"", all.size()}};
  const GroupId group = dag.groups.intern(std::move(all));
  const Collective op{CollectiveKind::AllReduce, Item::scalars(), dag.groups.whole(group)};
  return dag.add({op, {}, group, dag.stream("scalars"), {}, {}, {}});
}

}  // namespace piper
