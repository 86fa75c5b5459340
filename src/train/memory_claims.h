// Whether the memory that plans need is there, before anything takes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace piper {

/// Something that memory is taken from, by its name, and the bytes that are left in it: a machine, a control group, a
/// GPU. The same name is the same pool, whichever process sees it.
using MemoryPool = std::pair<std::string, int64_t>;

/// What a process will take, from all of these pools.
struct MemoryClaim {
  std::string process;  // `rank 3 on node7`, or `this process`
  int64_t needed = 0;   // at the peaks of its devices
  std::vector<MemoryPool> pools;
  int64_t copies = 0;  // besides: those from which it writes checkpoints
  int64_t recent = 0;  // and those with which it goes on when other processes are lost

  template <class Self, class Each>
  static void each_field(Self& self, Each each) {
    each(self.process);
    each(self.needed);
    each(self.pools);
    each(self.copies);
    each(self.recent);
  }
};

/// E405: all claims on a pool together are more than it has.
Checked check_memory(const std::vector<MemoryClaim>& claims);

/// Of the machine with this name: what Linux says is available, swap included, and what is left to this process by the
/// control groups (v1 or v2) that it is in; what they keep of files counts as free. Nothing of what cannot be read.
/// `root`: of the file system.
std::vector<MemoryPool> host_memory(const std::string& host, const std::filesystem::path& root = "/");

}  // namespace piper
