// What two ranks must have in common to have made the same order.
#pragma once

#include "cost/cluster.h"
#include "cost/cost_table.h"

namespace piper {

/// Of everything that decides how long a node takes; equal on every machine. Names and memory are not among it.
uint64_t hash_costs(const Cluster& cluster, const CostTable* table);

}  // namespace piper
