#include "passes/step_scalars.h"

#include <numeric>

namespace piper {

NodeId add_scalars(TrainingDag& dag) {
  DeviceGroup all{DeviceList(static_cast<size_t>(dag.devices)), {{"", dag.devices}}};
  std::iota(all.devices.begin(), all.devices.end(), 0);
  const GroupId group = dag.groups.intern(std::move(all));
  const Collective op{CollectiveKind::AllReduce, Item::scalars(), dag.groups.whole(group)};
  return dag.add({op, {}, group, dag.stream("scalars"), {}, {}, {}});
}

}  // namespace piper
