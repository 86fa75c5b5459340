// Which devices, process groups and ports are alike, so that one of each kind stands for all.
//
// Devices are alike if they have the same plan and hardware, meet alike devices in alike process groups, and reach them
// through alike ports; process groups and ports are alike if those are. This is the coarsest such division: what
// happens on one of a kind happens on all of it at the same time.
#pragma once

#include "sim/groupings.h"

namespace piper::sim {

using LaneId = Id<struct LaneTag>;            // a kind of devices; a trace has one lane for each
using GroupKindId = Id<struct GroupKindTag>;  // of process groups of one grouping
using PortKindId = Id<struct PortKindTag>;    // of ports of one level

template <class Kind>
struct Kinds {
  std::vector<Kind> of;    // kind of each thing; none: not part of the plan
  Table<Kind, int> first;  // the first thing of each kind

  size_t count() const { return first.size(); }
};

struct Symmetry {
  Kinds<LaneId> devices;
  Table<GroupingId, Kinds<GroupKindId>> groups;
  std::vector<Kinds<PortKindId>> ports;  // by level
};

enum class Reduce { AlikeDevices, Nothing };

Symmetry find_symmetry(const Plan& plan, const Cluster& cluster, const Groupings& groupings, Reduce reduce);

/// Devices with a plan behind each port of a level.
std::vector<std::vector<int>> devices_behind(const Plan& plan, const Cluster& cluster, int level);

}  // namespace piper::sim
