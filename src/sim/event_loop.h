// Runs plans by discrete events: when every operation of every kind of device starts and ends.
#pragma once

#include "sim/flows.h"

namespace piper::sim {

using SimulatedOpId = Id<struct SimulatedOpTag>;  // an operation of a lane

/// Operations of all lanes, one lane after the other.
struct SimulatedTimes {
  Table<LaneId, int> first;                   // operation of the lane; and the end of the last lane
  Table<SimulatedOpId, double> start, end;    // seconds
  Table<SimulatedOpId, SimulatedOpId> cause;  // its end let this one start; none: only the host's issue held it back

  SimulatedOpId at(LaneId lane, OpId op) const { return SimulatedOpId(first[lane] + op.value); }
  LaneId lane_of(SimulatedOpId id) const;
  OpId op_of(SimulatedOpId id) const { return OpId(id.value - first[lane_of(id)]); }
};

struct EventInput {
  const Plan& plan;
  const Cluster& cluster;
  const Groupings& groupings;
  const Symmetry& symmetry;
  const FlowTable& flows;
  std::vector<Table<WorkId, double>> seconds;  // by kind of device (as the cluster's)
  bool shared_links = true;                    // flows slow each other down
};

/// Nothing if the plans wait for each other for ever.
std::optional<SimulatedTimes> run_events(const EventInput& input);

}  // namespace piper::sim
