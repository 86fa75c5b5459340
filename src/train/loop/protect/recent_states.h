// What a process has in memory of a run's last steps, whatever happens to the other processes.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace piper {

/// Where a run stands.
struct StatePosition {
  int64_t step = 0, samples = 0, updates = 0;  // as in RunState
  double learning_rate = 0, loss = 0;
  uint64_t plan = 0;  // its hash
};

struct StateVersion {
  StatePosition progress;
  at::Tensor own, of_previous;                    // bytes of the devices of this process, and of the one before it
  bool has_own = false, has_of_previous = false;  // all of them
};

/// Outlives the processes' connections. Empty: of a process that has just come.
struct RecentStates {
  std::array<StateVersion, 2> versions;
};

}  // namespace piper
