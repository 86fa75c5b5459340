// Our own launcher, for processes that meet by TCP (comm/tcp/tcp_rendezvous.h): it starts them on this host, and is the
// host of their rendezvous.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace piper {

struct StartedProcesses {
  std::vector<std::string> line;                         // of each
  int count = 0;                                         // that train together
  int spares = 0;                                        // that wait for one of them to be lost
  std::chrono::milliseconds to_come{}, to_come_again{};  // limits
};

/// Returns when all have ended: the code of the first that was not 0. Signals for the end are passed on. Those that are
/// lost are killed.
int start_processes(const StartedProcesses& processes);

}  // namespace piper
