// Devices as threads of one process: the embedded default, and the bed on which every strategy is proved right.
//
// Members of an exchange put the addresses of their data on a board; when all have come each does its share of the work
// directly in the others' memory, and all leave together. Nothing is copied twice and nothing is allocated.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace piper {

struct LocalOptions {
  /// How long a member waits for the others.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Seconds that a communication takes at least, by its number: an emulated network. None: as fast as memory is.
  std::function<double(int64_t)> seconds;
};

/// One communicator per device, all joined.
std::vector<std::unique_ptr<Communicator>> make_local_world(int devices, LocalOptions options = {});

}  // namespace piper
