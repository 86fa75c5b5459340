// This machine as a cluster: what messages between threads cost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost/cost_table.h"
#include "runtime/device_run.h"

namespace piper {

struct LocalLink {
  double latency = 0;    // seconds
  double bandwidth = 0;  // bytes per second
};
/// Messages of several sizes between two threads: the line through them.
LocalLink measure_local_link();
/// The same between two devices that share a processor which has a clock of its own.
LocalLink measure_link_on(Processor& processor);

/// Devices that are threads of one process, and the cores that it may use.
struct LocalDevices {
  int count = 1;
  int threads = 1;  // of every device inside one operator
  double cores = 1;
};
/// There are fewer cores than what computes at once.
bool share_cores(const LocalDevices& devices);

/// A cluster file with that link.
std::string local_cluster_text(const LocalLink& link, const LocalDevices& devices);
/// The same, where all devices share a processor; `together`: as in cluster files.
std::string shared_cluster_text(const LocalLink& link, double together);

/// Updates as the flight recorders saw them: the median of the steps still recorded.
void add_update_costs(CostTable& costs, const Plan& plan, const std::vector<DeviceRun*>& devices);
/// Computations and updates of devices that take turns, in the same way.
CostTable recorded_costs(const Plan& plan, const std::vector<DeviceRun*>& devices);
/// When a computation ran, in seconds.
struct Ran {
  double start = 0, end = 0;
};
/// What a processor does with several computations at once, of what it does with one at a time, if they would have
/// taken `alone` seconds one after the other. Nothing: there were hardly ever several.
std::optional<double> gain_together(double alone, const std::vector<Ran>& computations);
/// The same of the steps still recorded: the median. 1: there were never several.
double measure_together(const Plan& plan, const std::vector<DeviceRun*>& devices, const CostTable& costs);

}  // namespace piper
