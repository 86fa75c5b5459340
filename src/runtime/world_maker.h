// How devices of a kind come to communicate.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/local/local_world.h"

namespace piper {

class WorldMaker {
 public:
  virtual ~WorldMaker() = default;
  /// Communicators of devices that all are here.
  virtual std::vector<std::unique_ptr<Communicator>> make_world(int devices, LocalOptions options) = 0;
  /// Communicators of devices whose others are in other processes. `host_communicators` carry messages of the host;
  /// `timeout`: how long the others may take to come.
  virtual std::vector<std::unique_ptr<Communicator>> join(std::vector<std::unique_ptr<Communicator>> host_communicators,
                                                          std::chrono::milliseconds timeout) = 0;
};

}  // namespace piper
