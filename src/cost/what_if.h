// Another cluster than the one there is: `bandwidth=x2,compute=x0.5`, `infiniband=x2`.
#pragma once

#include <map>
#include <string>

#include "cost/cluster.h"

namespace piper {

/// Factors of speed and of time. `compute` and `memory` are speeds of devices, `bandwidth` and `latency` those of
/// links, `issue` is the host's time per operation. `links`: the bandwidth of one level of links, by its name.
struct WhatIf {
  double compute = 1, memory = 1, bandwidth = 1, latency = 1, issue = 1;
  std::map<std::string, double> links;
};

/// E102, E105: what is no factor above 0, and names that neither exist nor are links of the cluster.
Result<WhatIf> parse_what_if(const std::string& text, const Cluster& cluster);
Cluster changed(Cluster cluster, const WhatIf& what_if);

}  // namespace piper
