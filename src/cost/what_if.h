// Another cluster than the one there is: `bandwidth=x2,compute=x0.5`.
#pragma once

#include "cost/cluster.h"

namespace piper {

/// Factors of speed and of time. `compute` and `memory` are speeds of devices, `bandwidth` and `latency` those of links,
/// `issue` is the host's time per operation.
struct WhatIf {
  double compute = 1, memory = 1, bandwidth = 1, latency = 1, issue = 1;
};

/// E102, E105: what is no factor above 0, and names that do not exist.
Result<WhatIf> parse_what_if(const std::string& text);
Cluster changed(Cluster cluster, const WhatIf& what_if);

}  // namespace piper
