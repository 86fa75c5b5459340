// How `piper train` ends, alone or as one of several processes.
#pragma once

#include <string>

#include "base/diagnostic.h"
#include "comm/world.h"
#include "tools/commands.h"
#include "tools/training/recovery.h"

namespace piper {

/// How a run has ended.
struct Ending {
  int code = fine;
  bool said = true;      // this process has said why, if it failed
  std::string why = {};  // if it has not: what it would say, for others say more
  bool goes_on = false;  // this process is well, but others are lost

  bool failed() const { return code != fine && code < by_signal; }
};

/// In a job of several processes that has failed: who has the most to say does so first, and is then the end of all.
/// Where nobody has, because that one is gone or stopped, the others do.
[[noreturn]] void end_together(World& world, const Ending& ending);
/// Before there is a world. A call of MPI may wait for the others and never return.
[[noreturn]] void end_before(const Diagnostic& problem, bool color);
/// This process fails, and the others are to go on without it.
[[noreturn]] void end_alone(const Diagnostic& problem, bool color);
/// Others were lost, and nobody takes their places.
[[noreturn]] void end_after_losses(const Recovery& recovery, const Diagnostic& problem, bool color);

}  // namespace piper
