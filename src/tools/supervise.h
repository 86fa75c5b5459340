// Runs a launcher, which starts a job on many hosts, until nothing of both is left here.
//
// Launchers hang when a cable is pulled or one of their daemons is stopped. So they are only trusted with starting: the
// processes of the job say on the standard error when it ends, and with which code.
#pragma once

#include <string>
#include <vector>

namespace piper {

/// In the environment of the job: somebody waits for what `say_end` says.
constexpr const char* supervised_variable = "PIPER_SUPERVISED";

/// Said by the processes of a job when they begin, and by the one that speaks for it when it has nothing else to do but
/// end. Nothing where nobody waits for it.
void say_begin();
void say_end(int code);

struct Supervised {
  /// What `say_end` said, or what the launcher returned, where codes that only launchers have mean that the run failed.
  int code = 0;
  bool began = false;
};
/// Ctrl-C and SIGTERM are passed on as SIGUSR1, on which a job ends after its step; the second time as SIGTERM. Output
/// is passed on.
Supervised supervise(const std::vector<std::string>& line);

}  // namespace piper
