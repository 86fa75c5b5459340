// Replicas that are left share the work of those that are lost.
#pragma once

#include "recover/ways_on.h"

namespace piper {

/// One way in which what is left of placements goes on.
struct Share {
  Lose lose;        // of their lost devices
  int finer = 1;    // the batch is split into so many times more parts
  double load = 0;  // computing time of what is left, compared with before
};

/// Placements of the same chunks that have lost devices.
struct Hit {
  std::vector<GroupId> placements;
  DeviceList lost;
  std::vector<Share> shares;  // least load first; none: nothing is left of them
};
std::vector<Hit> find_hits(const Loss& loss);

/// The schedule with these directives, and those for lost devices that nothing was placed on.
Schedule with_shares(const Loss& loss, Schedule schedule, const std::vector<Share>& shares);

}  // namespace piper
