// Devices are lost: the best schedule for those that are left, and what it costs.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "search/evaluate.h"

namespace piper {

/// What runs, and on what.
struct RunningStep {
  const Schedule& schedule;  // as written; what it has lost already stays lost
  std::shared_ptr<const ModelGraph> model;
  const Cluster& cluster;
  const std::optional<CostTable>& costs;
};

/// The fastest of a few schedules for the devices that are left, all with the same batch. It is compiled, proved and
/// simulated, and fits. E205: no such device; E319: nothing is left, or no schedule is legal; E405: none fits.
Result<Evaluated> shrink(const RunningStep& step, DeviceList lost);

/// What the loss of one device costs. Devices that do the same are one loss: that of the first.
struct SingleLoss {
  DeviceList devices;
  Result<Evaluated> without;
};
/// `alike`: devices of which one stands for all.
std::vector<SingleLoss> single_losses(const RunningStep& step, const std::vector<DeviceList>& alike);

}  // namespace piper
