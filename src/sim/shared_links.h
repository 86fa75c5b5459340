// Flows that share ports share their time: all flows through a port that is asked for too much are slowed down by the
// same factor, unless another port slows them down more.
#pragma once

#include <vector>

#include "sim/flows.h"

namespace piper::sim {

class SharedLinks {
 public:
  SharedLinks(size_t ports, size_t ids);

  /// The flow of this id runs from now on; which speeds changed is in changed().
  void add(int id, const Flow& flow);
  void remove(int id);
  /// Share of its full speed.
  double speed(int id) const { return speed_[static_cast<size_t>(id)]; }
  /// Ids of active flows whose speed the last add or remove changed.
  const std::vector<int>& changed() const { return changed_; }

 private:
  struct PortState {
    std::vector<int> active;  // ids
    double wanted = 0;        // share of its time that they want together
    // while speeds are found: what is left of its time, and who is still without a speed and what they want together
    double left = 1, open = 0;
    int waiting = 0;
    int round = 0;
  };
  bool overloaded(const PortState& port) const { return port.wanted > 1 + 1e-12; }
  /// New speeds for all flows that are connected with these ports through overloaded ones.
  void share(const Flow& around);

  std::vector<PortState> ports_;
  std::vector<const Flow*> flow_;  // by id; null: not active
  std::vector<double> speed_;
  std::vector<int> visited_;  // by id: round
  std::vector<int> changed_, members_, busy_;
  int round_ = 0;
};

}  // namespace piper::sim
