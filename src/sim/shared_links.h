// Flows that share ports share their time: all flows through a port that is asked for too much are slowed down by the
// same factor, unless another port slows them down more.
#pragma once

#include <vector>

#include "sim/flows.h"

namespace piper::sim {

using InstanceId = Id<struct InstanceTag>;  // a communication in one process group

class SharedLinks {
 public:
  SharedLinks(size_t ports, size_t instances);

  /// The flow of this instance runs from now on; which speeds changed is in changed().
  void add(InstanceId id, const Flow& flow);
  void remove(InstanceId id);
  /// Share of its full speed.
  double speed(InstanceId id) const { return speed_[id]; }
  /// Instances of active flows whose speed the last add or remove changed.
  const std::vector<InstanceId>& changed() const { return changed_; }

 private:
  struct PortState {
    std::vector<InstanceId> active;
    double wanted = 0;  // share of its time that they want together
    // while speeds are found: what is left of its time, and who is still without a speed and what they want together
    double left = 1, open = 0;
    int waiting = 0;
    int round = 0;
  };
  bool overloaded(const PortState& port) const { return port.wanted > 1 + 1e-12; }
  /// New speeds for all flows that are connected with these ports through overloaded ones.
  void share(const Flow& around);

  Table<PortId, PortState> ports_;
  Table<InstanceId, const Flow*> flow_;  // null: not active
  Table<InstanceId, double> speed_;
  Table<InstanceId, int> visited_;  // in this round
  std::vector<InstanceId> changed_, members_;
  std::vector<PortId> busy_;
  int round_ = 0;
};

}  // namespace piper::sim
