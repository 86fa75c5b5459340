// What each communication puts on the links, for one process group of every kind.
#pragma once

#include "sim/symmetry.h"

namespace piper::sim {

/// One direction of a kind of port.
struct Port {
  int level = 0;
  bool outward = true;
  int kind = 0;  // into Symmetry::ports of the level
};

/// How busy one port is with all process groups of a kind that pass it, while they run at full speed.
struct PortUse {
  int port = 0;      // into FlowTable::ports
  double share = 0;  // of its time
  double bytes = 0;  // in all
};

/// A communication inside one process group.
struct Flow {
  double seconds = 0;  // with the links to itself
  std::vector<PortUse> uses;
};

struct FlowTable {
  std::vector<Port> ports;
  std::vector<Flow> flows;
  std::vector<int> first;  // by communication: the flow of its first kind of process group

  const Flow& of(int communication, int group_kind) const {
    return flows[static_cast<size_t>(first[static_cast<size_t>(communication)] + group_kind)];
  }
};

FlowTable find_flows(const Plan& plan, const Cluster& cluster, const Groupings& groupings, const Symmetry& symmetry);

}  // namespace piper::sim
