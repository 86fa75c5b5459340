// Processes that MPI has started.
#pragma once

#include <chrono>
#include <optional>

#include "comm/processes/process_world.h"

namespace piper {

/// How many processes the launcher says it started, from the environment; none: started by no launcher that is known.
/// More than `MpiWorld::ranks`: the launcher belongs to another MPI than this program.
std::optional<int> launched_ranks();

/// One per process: MPI is initialised and finalised with it, unless it is already.
class MpiWorld : public ProcessWorld {
 public:
  /// Throws NobodyCame after `timeout`, if it is given: MPI waits for as long as it takes.
  explicit MpiWorld(std::optional<std::chrono::milliseconds> timeout = {});
};

}  // namespace piper
