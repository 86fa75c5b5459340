// Numbers of a cluster that are fitted to measurements.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cost/cluster.h"

namespace piper {

struct FittedParameter {
  std::string name;  // as in the file: `a100 compute_efficiency`, `nvlink latency`
  double least = 0, most = 1;
  std::function<double(const Cluster&)> get;
  std::function<void(Cluster&, double)> set;
};

/// Of every kind of device how operators reach its speeds; of every level of links latency and efficiency; and what a
/// step takes besides.
std::vector<FittedParameter> parameters_of(const Cluster& cluster);

/// Kinds of device that price computations as a whole get operators to fit: products without tiles, launched one by
/// one. What operators say takes the place of what operations did, so that nothing counts twice.
Cluster with_operators(Cluster cluster);

}  // namespace piper
