// What operations are expected to take before they were ever run.
#pragma once

#include <optional>

#include "cost/cluster.h"
#include "cost/cost_table.h"
#include "runtime/watch.h"

namespace piper {

/// Computations and updates as measured costs say, communications as the links of a cluster say, alone.
Predictions predictions(const Plan& plan, const std::optional<CostTable>& costs, const std::optional<Cluster>& cluster);

}  // namespace piper
