// This machine as a cluster: what messages between threads cost.
#pragma once

#include <string>

#include "cost/cost_table.h"
#include "runtime/device_run.h"

namespace piper {

struct LocalLink {
  double latency = 0;    // seconds
  double bandwidth = 0;  // bytes per second
};
/// Messages of several sizes between two threads: the line through them.
LocalLink measure_local_link();

/// A cluster file with that link.
std::string local_cluster_text(const LocalLink& link);

/// Updates as the flight recorders saw them: the median of the steps still recorded.
void add_update_costs(CostTable& costs, const Plan& plan, const std::vector<DeviceRun*>& devices);

}  // namespace piper
