// The process that has started this one: a launcher of MPI, its daemon on this host, torchrun, or our own.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace piper {

/// What our own launcher is called, and what it tells each process: which one it is, and where all meet.
inline constexpr char own_launcher_name[] = "piper-launch", number_variable[] = "PIPER_RANK",
                      rendezvous_variable[] = "PIPER_RENDEZVOUS";

/// The number that the launcher has given to this process, from the environment.
std::optional<int> launched_rank();

class Launcher {
 public:
  Launcher();

  /// The processes that it has started on this host and that somebody has stopped: `rank 1 (process 4711)`.
  std::vector<std::string> stopped() const;
  /// Of those that are not, this process was started first: it speaks for them.
  bool first_here() const;

  /// It has ended, and so should what it started. False where the parent is something else than a launcher.
  bool gone() const;
  /// Ends it where it cannot end by itself: it is stopped or, if `also_running`, does not do what it was asked to.
  void end(bool also_running) const;

 private:
  int process_ = 0;  // 0: not a launcher
};

}  // namespace piper
