// Which GPU each process of a job gets.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace piper {

/// What a process says before GPUs are given out.
struct GpuClaim {
  std::string process;            // `rank 3 on node7`
  std::vector<std::string> gpus;  // that it sees, in its order; names that are the same in every process

  template <class Self, class Each>
  static void each_field(Self& self, Each each) {
    each(self.process);
    each(self.gpus);
  }
};

/// By process: the first of its GPUs that none before it has. So it does not matter whether processes see all GPUs of
/// their host, or each its own. E807: one gets none.
Result<std::vector<int>> give_out(const std::vector<GpuClaim>& claims);

}  // namespace piper
