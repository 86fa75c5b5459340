// The process that has started this one: a launcher of MPI, its daemon on this host, or torchrun.
#pragma once

#include <string>

namespace piper {

class Launcher {
 public:
  Launcher();

  /// It has ended, and so should what it started. False where the parent is something else than a launcher.
  bool gone() const;
  /// Ends it where it cannot end by itself: it is stopped or, if `also_running`, does not do what it was asked to.
  void end(bool also_running) const;

 private:
  int process_ = 0;  // 0: not a launcher
};

}  // namespace piper
