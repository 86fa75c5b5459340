// Runs a launcher, which starts the processes of a job, until nothing of both is left here.
//
// Launchers hang when a cable is pulled or one of their daemons is stopped. So they are only trusted with starting: the
// processes of the job say on the standard error when it ends, and with which code.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace piper {

/// In the environment of the job: somebody waits for what `say_end` says.
constexpr const char* supervised_variable = "PIPER_SUPERVISED";

/// Said by the processes of a job when they begin, and when they join the others; and by the one that speaks for it
/// when it has nothing else to do but end. Nothing where nobody waits for it.
void say_begin();
void say_joining(int rank);
void say_end(int code);
/// Said by rank 0: so many steps are done; and by whoever has found out: a host is to blame for the end of the job.
void say_step(int64_t steps);
void say_blame(const std::string& host);
/// What a process of the job returns. Launchers take all codes but 0 for failures, and complain; whoever waits for
/// `say_end` knows better.
int code_for_launcher(int code);

/// When things happened, in seconds since any moment; none: they did not.
struct JobTimes {
  std::optional<double> begun, first_step_known, second_step_known, last_step_known, failed, ended;
};

struct Supervised {
  /// What `say_end` said; of a run that a signal stopped here, `by_signal` and its number. Otherwise what the launcher
  /// returned, where codes that only launchers have, and 0 too, mean that the run failed.
  int code = 0;
  bool began = false;
  bool late = false;      // no process had begun within the limit
  std::set<int> joining;  // the ranks that came so far
  std::string launcher;   // how it ended, if the job has said nothing about its own end and none was asked for
  bool asked = false;     // a signal asked for its end
  /// Steps that were done when it began, and when it ended, as far as it has said so.
  std::optional<int64_t> first_step, last_step;
  std::set<std::string> blamed;  // hosts
  JobTimes times;
};
/// Ctrl-C and SIGTERM are passed on as SIGUSR1, on which a job ends after its step; the second time as SIGTERM. Output
/// is passed on. The first process begins within `to_begin` seconds; from then on the job has limits of its own.
/// `launcher`: runs in a process of its own, which it may leave to a program; it returns the exit code.
/// `goes_on`: called once, when the first step that it takes is done.
Supervised supervise(const std::function<int()>& launcher, double to_begin,
                     const std::function<void(const Supervised&)>& goes_on = nullptr);

/// A launcher that is a program: its name, and what it is told. Returns only where it cannot be started.
int become_launcher(const std::vector<std::string>& line);

/// Kills all that was started from here, and what that has started; whether there was something.
bool kill_descendants();

}  // namespace piper
