// Makes the communicators of devices of one kind.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/local/local_world.h"

namespace piper {

class WorldMaker {
 public:
  virtual ~WorldMaker() = default;
  /// For devices that are all in this process.
  virtual std::vector<std::unique_ptr<Communicator>> make_world(int devices, LocalOptions options) = 0;
  /// For devices of several processes. `host_communicators` carry the host's messages; `timeout`: how long the other
  /// processes may take to join.
  virtual std::vector<std::unique_ptr<Communicator>> join(std::vector<std::unique_ptr<Communicator>> host_communicators,
                                                          std::chrono::milliseconds timeout) = 0;
};

}  // namespace piper
