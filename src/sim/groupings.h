// Who communicates with whom: the process groups of every communication.
//
// A communication is one thing on all its devices, but falls into process groups that do not wait for each other: the
// parts of a collective's partition; the senders and receivers of a transfer that share samples. Many communications of
// a plan have the same process groups; a grouping is what they share.
#pragma once

#include <vector>

#include "cost/traffic.h"
#include "plan/plan.h"

namespace piper::sim {

using GroupingId = Id<struct GroupingTag>;
using ProcessGroupId = Id<struct ProcessGroupTag>;  // of one grouping

/// What one device sends to another in a transfer.
struct Piece {
  int from = 0, to = 0;
  int level = -1;    // at which they meet; -1: it stays on the device
  double share = 1;  // of what the receiver gets in all
};

struct ProcessGroup {
  std::vector<int> members;    // of a collective, or those who send
  std::vector<int> receivers;  // of a transfer
  std::vector<Piece> pieces;   // of a transfer
  Spread spread;               // of a collective
};

struct Grouping {
  bool transfer = false;
  Table<ProcessGroupId, ProcessGroup> groups;
  std::vector<ProcessGroupId> of_member, of_receiver;  // by device; none: not there
};

struct Groupings {
  Table<GroupingId, Grouping> all;
  Table<CommunicationId, GroupingId> of_communication;
};

/// All devices of the plan must be in the cluster (check_devices).
Groupings find_groupings(const Plan& plan, const Cluster& cluster);

}  // namespace piper::sim
