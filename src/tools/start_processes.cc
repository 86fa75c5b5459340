#include "tools/start_processes.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include "comm/processes/launcher.h"
#include "comm/tcp/tcp_rendezvous.h"
#include "tools/become.h"
#include "tools/commands.h"

namespace piper {
namespace {

constexpr auto between_looks = std::chrono::milliseconds(50);  // at processes, and at signals
constexpr auto to_end = std::chrono::seconds(2);

volatile std::sig_atomic_t asked_by = 0;  // a signal that the processes get too

void note(int signal) {
  asked_by = signal;
}

/// What shells return.
int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : by_signal + WTERMSIG(status);
}

std::string end_of(int status) {
  return WIFEXITED(status) ? fmt::format("it returned {}", WEXITSTATUS(status))
                           : fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

class ProcessLauncher {
 public:
  explicit ProcessLauncher(const StartedProcesses& wanted)
      : wanted_(wanted), host_("127.0.0.1", wanted.count, wanted.spares, {wanted.to_come, wanted.to_come_again}) {}

  int run() {
    for (const int signal : {SIGUSR1, SIGUSR2, SIGINT, SIGTERM}) std::signal(signal, note);
    setenv(rendezvous_variable, host_.address().c_str(), 1);
    for (int number = 0; number < wanted_.count + wanted_.spares; ++number) start(number);
    while (!running_.empty()) {
      if (const auto decision = host_.serve(between_looks)) tell(*decision);
      reap();
      if (const int signal = asked_by) pass_on(signal);
      if (terminated_at_ && Clock::now() > *terminated_at_ + to_end) signal_all(SIGKILL);
    }
    return code_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void start(int number) {
    setenv(number_variable, fmt::format("{}", number).c_str(), 1);
    const pid_t process = fork();
    if (process == 0) {
      become(wanted_.line[0], wanted_.line);
      fmt::print(stderr, "piper: {} cannot be started: {}\n", wanted_.line[0], std::strerror(errno));
      _exit(run_failed);
    }
    if (process > 0) running_[process] = number;
  }

  void reap() {
    int status = 0;
    for (pid_t process = 0; (process = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = running_.find(process);
      if (found == running_.end()) continue;
      const int number = found->second;
      running_.erase(found);
      ends_[number] = end_of(status);
      if (code_ == 0) code_ = code_of(status);
      host_.gone(number, ends_[number]);
    }
    const auto takes_part = [&](const auto& process) { return host_.has_place(process.second); };
    if (begun_ && std::ranges::none_of(running_, takes_part)) host_.end("all others have ended");
  }

  void tell(const TcpRendezvousHost::Decision& decision) {
    begun_ = true;
    reap();
    for (const int number : decision.lost) {
      std::string how = "it does not answer, and is killed";
      if (const auto ended = ends_.find(number); ended != ends_.end()) how = ended->second;
      fmt::print(stderr, "piper: process {} is lost: {}\n", number, how);
      for (const auto& [process, other] : running_)
        if (other == number) kill(process, SIGKILL);
    }
    if (!decision.end.empty()) fmt::print(stderr, "piper: the job cannot go on: {}\n", decision.end);
    if (decision.epoch > 0 && decision.end.empty())
      for (const auto& [rank, number] : decision.placed)
        fmt::print(stderr, "piper: process {} takes the place of rank {}\n", number, rank);
    std::fflush(stderr);
  }

  void pass_on(int signal) {
    asked_by = 0;
    if (signal == SIGTERM) terminated_at_ = Clock::now();
    signal_all(signal);
  }

  void signal_all(int signal) {
    for (const auto& [process, number] : running_) kill(process, signal);
  }

  const StartedProcesses wanted_;
  TcpRendezvousHost host_;
  std::map<pid_t, int> running_;     // their numbers
  std::map<int, std::string> ends_;  // by number
  bool begun_ = false;               // the first epoch
  std::optional<Clock::time_point> terminated_at_;
  int code_ = 0;
};

}  // namespace

int start_processes(const StartedProcesses& processes) try {
  prctl(PR_SET_NAME, own_launcher_name);
  return ProcessLauncher(processes).run();
} catch (const CommunicationError& problem) {
  fmt::print(stderr, "piper: {}\n", problem.what());
  return run_failed;
}

}  // namespace piper
