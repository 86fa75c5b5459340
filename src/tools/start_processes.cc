#include "tools/start_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
#include "tools/process_places.h"
#include "tools/supervise.h"

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
      : wanted_(wanted), host_(wanted.address, wanted.count, wanted.spares, {wanted.to_come, wanted.to_come_again}) {}

  int run() {
    for (const int signal : {SIGUSR1, SIGUSR2, SIGINT, SIGTERM}) std::signal(signal, note);
    std::signal(SIGPIPE, SIG_IGN);  // of a shell for another host that ends at once
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

  const std::string& host_of(int number) const { return wanted_.hosts[static_cast<size_t>(number)]; }
  bool is_here(int number) const { return wanted_.hosts.empty() || is_this_host(host_of(number)); }

  void start(int number) {
    const pid_t process = is_here(number) ? start_here(number) : start_there(number);
    if (process < 0) return cannot_start(number, std::strerror(errno));
    running_[process] = number;
  }

  pid_t start_here(int number) {
    setenv(number_variable, fmt::format("{}", number).c_str(), 1);
    const pid_t process = fork();
    if (process == 0) become_this(wanted_.line);
    return process;
  }

  pid_t start_there(int number) {
    std::array<int, 2> input{};
    if (pipe2(input.data(), O_CLOEXEC) != 0) return -1;
    std::vector<std::pair<std::string, std::string>> variables = {{number_variable, fmt::format("{}", number)}};
    if (std::getenv(supervised_variable)) variables.emplace_back(supervised_variable, "1");
    const pid_t process = fork();
    if (process == 0) {
      dup2(input[0], STDIN_FILENO);
      become_this(on_host(number, remote_command(wanted_.line, variables, rendezvous_variable)));
    }
    close(input[0]);
    const std::string secret = host_.address() + "\n";
    if (process > 0 && write(input[1], secret.data(), secret.size()) < 0) errno = 0;  // its end is seen later
    close(input[1]);
    return process;
  }

  std::vector<std::string> on_host(int number, const std::string& command) const {
    std::vector<std::string> out = {wanted_.shell};
    if (wanted_.shell == "ssh") out.insert(out.end(), {"-o", "BatchMode=yes"});  // nobody answers its questions
    out.insert(out.end(), {host_of(number), command});
    return out;
  }

  [[noreturn]] static void become_this(const std::vector<std::string>& line) {
    std::signal(SIGPIPE, SIG_DFL);
    become(line[0], line);
    fmt::print(stderr, "piper: {} cannot be started: {}\n", line[0], std::strerror(errno));
    _exit(run_failed);
  }

  void cannot_start(int number, const std::string& why) {
    ends_[number] = {.how = fmt::format("it cannot be started: {}", why)};
    fmt::print(stderr, "piper: process {} cannot be started: {}\n", number, why);
    if (number < wanted_.count) code_ = run_failed;
    host_.gone(number, ends_[number].how);
  }

  void reap() {
    int status = 0;
    for (pid_t process = 0; (process = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = running_.find(process);
      if (found == running_.end()) continue;
      const int number = found->second;
      running_.erase(found);
      ends_[number] = {end_of(status), WIFSIGNALED(status) != 0};
      if (code_ == 0) code_ = code_of(status);
      host_.gone(number, ends_[number].how);
    }
    const auto takes_part = [&](const auto& process) { return host_.has_place(process.second); };
    if (!begun_ || over_ || std::ranges::any_of(running_, takes_part)) return;
    over_ = true;
    if (!terminated_at_) tell_if_all_are_lost();
    host_.end("all others have ended");
  }

  /// Whoever ends by itself has said why, or been told; whoever is killed has not.
  void tell_if_all_are_lost() {
    const auto is_silent = [&](const auto& end) { return !host_.has_place(end.first) || end.second.by_signal; };
    if (!std::ranges::all_of(ends_, is_silent)) return;
    for (const auto& [number, end] : ends_)
      if (host_.has_place(number)) fmt::print(stderr, "piper: process {} is lost: {}\n", number, end.how);
    fmt::print(stderr,
               "piper: the job cannot go on: all its processes are lost, and what the devices held with them\n");
    say_end(run_failed);
    std::fflush(stderr);
  }

  void tell(const TcpRendezvousHost::Decision& decision) {
    begun_ = true;
    reap();
    for (const int number : decision.lost) {
      std::string how = "it does not answer, and is killed";
      if (const auto ended = ends_.find(number); ended != ends_.end()) how = ended->second.how;
      fmt::print(stderr, "piper: process {} is lost: {}\n", number, how);
      end_lost(number);
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
    for (const auto& [process, number] : running_)
      if (is_here(number) || signal == SIGKILL || !host_.pass_on(signal, number)) kill(process, signal);
  }

  /// On another host it may be stopped, so that it hears nothing, and the shell that started it cannot help.
  void end_lost(int number) {
    for (const auto& [process, other] : running_)
      if (other == number) kill(process, SIGKILL);
    const int there = host_.process_of(number);
    if (is_here(number) || there == 0) return;
    if (fork() == 0) become_this(on_host(number, fmt::format("kill -KILL {} 2>/dev/null", there)));
  }

  const StartedProcesses wanted_;
  TcpRendezvousHost host_;
  std::map<pid_t, int> running_;  // their numbers
  struct End {
    std::string how;
    bool by_signal = false;
  };
  std::map<int, End> ends_;  // by number
  bool begun_ = false;       // the first epoch
  bool over_ = false;        // nobody takes part any more
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
