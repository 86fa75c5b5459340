// Fits the parameters of a cluster to what was measured.
#pragma once

#include "calibrate/observation.h"
#include "calibrate/parameters.h"

namespace piper {

/// The cluster whose predictions are nearest to the measurements: relative errors, those far above a tenth by their
/// size rather than its square, every set with the same weight. A step takes as long as its longest path: plans are
/// simulated, the parameters fitted to the longest paths found so far, and plans simulated again with them, until that
/// finds no better ones.
Result<Cluster> fit_cluster(const std::vector<Observation>& observations, const Cluster& start);

/// What the cluster predicts for each.
Result<std::vector<double>> predict(const std::vector<Observation>& observations, const Cluster& cluster);

}  // namespace piper
