#include "train/loop/predictions.h"

#include "cost/cluster.h"
#include "train/loop/emulated_network.h"

namespace piper {

Predictions predictions(const Plan& plan, const std::optional<CostTable>& costs,
                        const std::optional<Cluster>& cluster) {
  Predictions out;
  if (costs)
    for (const PlanWork& work : plan.works)
      out.works.push_back(find(*costs, plan.names[work.name], work.pass, work.samples).value_or(0));
  if (cluster && check_devices(*cluster, device_count(plan), {}))
    out.communications = communication_seconds(plan, *cluster);
  return out;
}

}  // namespace piper
