// Small problems for the search: models, clusters, numbers of devices.
#pragma once

#include "model/analytic/model_config.h"
#include "property/random.h"
#include "search/problem.h"

namespace piper::search_cases {

Problem problem_for(const ModelConfig& config, int64_t batch, const Cluster& cluster, int devices, Fixed fixed = {},
                    int64_t sequence = 512);

/// The cluster with nodes of two devices.
Cluster in_small_nodes(Cluster cluster);
/// The first node as it is, all others with devices of this share of its speed, and half of its memory.
Cluster with_slow_nodes(Cluster cluster, double share);

/// A transformer of a few layers, dense or with experts, tied or not, on a cluster of one or two levels. Some have
/// sequences so long that context parallelism may divide them.
Problem random_problem(property::Random& random);

}  // namespace piper::search_cases
