// Runs plans by discrete events: when every operation of every kind of device starts and ends.
#pragma once

#include "sim/flows.h"

namespace piper::sim {

/// Operations of all kinds of devices, one kind after the other.
struct SimulatedTimes {
  std::vector<int> first;          // by kind of device, and the end of the last
  std::vector<double> start, end;  // seconds
  std::vector<int> cause;          // the operation whose end let it start; -1: only the host's issue held it back
};

struct EventInput {
  const Plan& plan;
  const Cluster& cluster;
  const Groupings& groupings;
  const Symmetry& symmetry;
  const FlowTable& flows;
  std::vector<std::vector<double>> seconds;  // of a work, by kind of device (as the cluster's) and work
  bool shared_links = true;                  // flows slow each other down
};

/// Nothing if the plans wait for each other for ever.
std::optional<SimulatedTimes> run_events(const EventInput& input);

}  // namespace piper::sim
