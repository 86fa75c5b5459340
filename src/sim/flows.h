// What each communication puts on the links, for one process group of every kind.
#pragma once

#include "sim/routing.h"
#include "sim/symmetry.h"

namespace piper::sim {

using PortId = Id<struct PortTag>;
using FlowId = Id<struct FlowTag>;

/// One direction of a kind of port.
struct Port {
  int level = 0;
  bool outward = true;
  PortKindId kind;
};

/// How busy one port is with all process groups of a kind that pass it, while they run at full speed.
struct PortUse {
  PortId port;
  double share = 0;  // of its time
  double bytes = 0;  // in all
};

/// A communication inside one process group.
struct Flow {
  double seconds = 0;  // with the links to itself
  std::vector<PortUse> uses;
};

struct FlowTable {
  Table<PortId, Port> ports;
  Table<FlowId, Flow> flows;
  Table<CommunicationId, FlowId> first;  // the flow of its first kind of process group

  const Flow& of(CommunicationId communication, GroupKindId kind) const {
    return flows[FlowId(first[communication].value + kind.value)];
  }
};

/// Of a communication inside a process group, with the links to itself. `kind`: of its operations.
double flow_seconds(const Cluster& cluster, const ProcessGroup& group, OpKind kind, int64_t bytes);

/// What exchanges of rows have to do: how many there are, and the seconds that further rounds compute.
struct RowExchanges {
  Table<CommunicationId, RowLoad> loads;
  Table<CommunicationId, double> computing;
};
FlowTable find_flows(const Plan& plan, const Cluster& cluster, const Groupings& groupings, const Symmetry& symmetry,
                     const RowExchanges& rows);

}  // namespace piper::sim
