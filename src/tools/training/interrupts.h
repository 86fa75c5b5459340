// Signals that ask a run for its end.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace piper {

/// While it lives, the first Ctrl-C (or SIGTERM, which launchers make of it, or SIGUSR1, of `piper launch`) only asks
/// for the end; the second ends the program at once.
class WatchInterrupts {
 public:
  WatchInterrupts();
  ~WatchInterrupts();

  /// The signal that asked for the end; 0: none yet.
  static int asked_by();

 private:
  void (*interrupt_)(int);
  void (*terminate_)(int);
  void (*user_)(int);
};

/// Looks often, on a thread of its own, whether the launcher wants this process to end. It may do so because another
/// one is gone, and kills soon.
class OnTerminate {
 public:
  explicit OnTerminate(std::function<void()> act);
  ~OnTerminate();

 private:
  void look();

  std::function<void()> act_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace piper
