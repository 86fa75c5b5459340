// Executes the plans of all devices on paper: when every operation runs, and what passes the links.
#pragma once

#include "base/result.h"
#include "cost/cost_table.h"
#include "sim/event_loop.h"
#include "sim/routing.h"

namespace piper {

struct SimOptions {
  bool all_devices = false;  // simulate every device, not one of each kind
  bool shared_links = true;  // flows that share a link slow each other down
  Routing routing = {};      // how tokens choose experts, where their rows are sorted
};

/// What passed the links of one level during the step.
struct LevelUse {
  std::string name;
  double bytes = 0;    // sent through all its ports
  double busiest = 0;  // seconds that the busiest port was busy, in one direction
};

struct Simulation {
  double seconds = 0;  // of the step
  Table<sim::LaneId, DeviceList> devices;
  Table<sim::LaneId, TemplateId> plan_of;
  sim::SimulatedTimes times;
  std::vector<LevelUse> levels;
  Table<CommunicationId, int> limited_by;  // the level whose ports are busiest with it, -1: none
  std::optional<sim::RowLoad> rows;        // of the busiest device that divides experts whose rows are sorted
};

/// The plan must be proved. `measured` costs replace those of the cluster for computations; one that is missing is
/// an error (E112), as are more devices than the cluster has and links that do not exist.
Result<Simulation> simulate(const Plan& plan, const Cluster& cluster, const CostTable* measured = nullptr,
                            const SimOptions& options = {});

}  // namespace piper
