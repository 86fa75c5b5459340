// Our own launcher, for processes that meet by TCP (comm/tcp/tcp_rendezvous.h): it starts them, and is the host of
// their rendezvous. Those on other hosts are started by a remote shell; what they are told goes through the rendezvous.
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
  std::vector<std::string> hosts = {};                   // of each, by number; empty: all are on this one
  std::string address = "127.0.0.1";                     // at which they find this one
  std::string shell = "ssh";                             // `shell HOST COMMAND` runs a command there
};

/// Returns when all have ended: the code of the first that was not 0. Signals for the end are passed on. Those that are
/// lost are killed.
int start_processes(const StartedProcesses& processes);

}  // namespace piper
