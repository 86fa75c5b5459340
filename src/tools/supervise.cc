#include "tools/supervise.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>

#include "tools/become.h"
#include "tools/commands.h"

namespace piper {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::string_view begin_mark = "piper-job-begins", joining_mark = "piper-job-joined-by ",
                           end_mark = "piper-job-ends-with ", step_mark = "piper-job-at-step ",
                           blame_mark = "piper-job-blames ";
constexpr auto after_failure = seconds(5), after_success = seconds(15);  // for the launcher to end
constexpr auto after_terminate = seconds(3);
constexpr auto stopped_timeout = seconds(5);
constexpr auto drain = milliseconds(500);  // for output of what has ended

/// Children, theirs, and those whose parents are gone: all that a job has left on this host.
std::vector<pid_t> descendants(pid_t of) {
  std::vector<pid_t> out;
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", of));
  for (pid_t child = 0; children >> child;) {
    out.push_back(child);
    const std::vector<pid_t> more = descendants(child);
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

/// That the text begins with.
int64_t number_in(std::string_view text, int64_t otherwise) {
  std::from_chars(text.data(), text.data() + text.size(), otherwise);
  return otherwise;
}

double seconds_now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

int signals_of_interest() {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&mask, signal);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  return signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
}

class Supervisor {
 public:
  explicit Supervisor(const std::function<void(const Supervised&)>& goes_on) : goes_on_(goes_on) {}
  ~Supervisor() {
    if (signals_ >= 0) close(signals_);
    if (errors_ >= 0) close(errors_);
  }

  Supervised run(const std::function<int()>& launcher, double to_begin) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // what loses its parent becomes a child of this process
    signals_ = signals_of_interest();
    std::signal(SIGPIPE, SIG_IGN);  // nobody reads the output any more: the job still has to be ended
    if (!start(launcher)) {
      job_.code = run_failed;
      job_.launcher = std::strerror(errno);
      return job_;
    }
    const auto begins_until = Clock::now() + std::chrono::duration<double>(to_begin);
    while (!status_) {
      wait(milliseconds(100));
      const auto now = Clock::now();
      if (ended_at_ && now > *ended_at_ + (code_ == 0 ? after_success : after_failure))
        end("it does not end by itself");
      if (stopped_at_ && now > *stopped_at_ + stopped_timeout) end("it was stopped");
      if (!job_.began && now > begins_until) {
        job_.late = true;
        end("no process has begun");
      }
      if (terminated_at_ && now > *terminated_at_ + after_terminate) kill_all();
    }
    for (const auto until = Clock::now() + drain; errors_ >= 0 && Clock::now() < until;) wait(milliseconds(50));
    if (!line_.empty()) pass_on(line_);
    kill_all();
    job_.code = code();
    job_.asked = asked_by_.has_value();
    if (!ended_at_ && !asked_by_ && !terminated_at_) job_.launcher = how_launcher_ended();
    job_.times.ended = seconds_now();
    return job_;
  }

 private:
  bool start(const std::function<int()>& launcher) {
    std::array<int, 2> pipe_ends{};
    if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return false;
    launcher_ = fork();
    if (launcher_ == 0) {
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGTERM);  // it does not outlive this process, whatever ends that
      std::signal(SIGPIPE, SIG_DFL);
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
      dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);  // the terminal belongs to this process
      dup2(pipe_ends[1], STDERR_FILENO);
      setenv(supervised_variable, "1", 1);
      _exit(launcher());
    }
    close(pipe_ends[1]);
    errors_ = pipe_ends[0];
    return launcher_ > 0;
  }

  /// For something to happen.
  void wait(milliseconds longest) {
    std::array<pollfd, 2> files = {pollfd{signals_, POLLIN, 0}, pollfd{errors_, POLLIN, 0}};
    poll(files.data(), errors_ >= 0 ? 2 : 1, static_cast<int>(longest.count()));
    signalfd_siginfo info{};
    while (read(signals_, &info, sizeof info) == sizeof info) handle(static_cast<int>(info.ssi_signo));
    if (errors_ >= 0 && files[1].revents != 0) read_errors();
  }

  void handle(int signal) {
    if (signal == SIGCHLD) return reap();
    if (signal == SIGUSR1 || signal == SIGUSR2) {
      kill(launcher_, signal);
    } else if (!asked_by_) {
      asked_by_ = signal;
      kill(launcher_, SIGUSR1);
    } else {
      insisted_ = true;
      terminate();
    }
  }

  void reap() {
    int status = 0;
    for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
      if (child != launcher_) continue;
      if (WIFSTOPPED(status))
        stopped_at_ = Clock::now();
      else if (WIFCONTINUED(status))
        stopped_at_.reset();
      else
        status_ = status;
    }
  }

  /// Line by line; what the processes say to this one is not passed on.
  void read_errors() {
    std::array<char, 65536> bytes{};
    const ssize_t count = read(errors_, bytes.data(), bytes.size());
    if (count <= 0) {
      close(errors_);
      errors_ = -1;
      return;
    }
    line_.append(bytes.data(), static_cast<size_t>(count));
    for (size_t end = 0; (end = line_.find_first_of("\r\n")) != std::string::npos;) {
      const std::string whole = line_.substr(0, end + 1);
      line_.erase(0, end + 1);
      if (const size_t mark = whole.find(end_mark); mark != std::string::npos)
        hear_end(static_cast<int>(number_in(std::string_view(whole).substr(mark + end_mark.size()), run_failed)));
      else if (const size_t by = whole.find(joining_mark); by != std::string::npos)
        job_.joining.insert(static_cast<int>(number_in(std::string_view(whole).substr(by + joining_mark.size()), 0)));
      else if (const size_t at = whole.find(step_mark); at != std::string::npos)
        hear_step(number_in(std::string_view(whole).substr(at + step_mark.size()), 0));
      else if (const size_t host = whole.find(blame_mark); host != std::string::npos)
        job_.blamed.insert(whole.substr(host + blame_mark.size(), end - host - blame_mark.size()));
      else if (whole.find(begin_mark) != std::string::npos)
        hear_begin();
      else
        pass_on(whole);
    }
  }

  void hear_begin() {
    job_.began = true;
    if (!job_.times.begun) job_.times.begun = seconds_now();
  }

  void hear_step(int64_t steps) {
    job_.last_step = steps;
    job_.times.last_step_known = seconds_now();
    if (!job_.first_step) {
      job_.first_step = steps;
      job_.times.first_step_known = seconds_now();
    } else if (!job_.times.second_step_known) {
      job_.times.second_step_known = seconds_now();
      if (goes_on_) goes_on_(job_);
    }
  }

  void hear_end(int code) {
    if (!code_) code_ = code;  // the first knows why
    if (!job_.times.failed && code != fine) job_.times.failed = seconds_now();
    if (!ended_at_) ended_at_ = Clock::now();
  }

  static void pass_on(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  }

  void end(std::string_view why) {
    if (terminated_at_) return;
    fmt::print(stderr, "piper: the launcher is ended: {}\n", why);
    if (!code_) code_ = run_failed;
    terminate();
  }

  void terminate() {
    if (!terminated_at_) terminated_at_ = Clock::now();
    kill(launcher_, SIGTERM);
    kill(launcher_, SIGCONT);
  }

  void kill_all() {
    for (int i = 0; i < 20; ++i) {
      reap();
      if (!kill_descendants()) return;
      std::this_thread::sleep_for(milliseconds(50));
    }
  }

  int code() const {
    if (asked_by_ && (insisted_ || !code_ || *code_ > by_signal)) return by_signal + *asked_by_;
    if (code_) return *code_;
    const int code = WIFEXITED(*status_) ? WEXITSTATUS(*status_) : run_failed;
    return code == refused || code == usage || code == our_bug ? code : run_failed;
  }

  std::string how_launcher_ended() const {
    return WIFSIGNALED(*status_)
               ? fmt::format("was ended by signal {} ({})", WTERMSIG(*status_), strsignal(WTERMSIG(*status_)))
               : fmt::format("returned {}", WEXITSTATUS(*status_));
  }

  int signals_ = -1, errors_ = -1;
  pid_t launcher_ = -1;
  std::optional<int> status_, code_;  // the launcher's, the job's
  std::optional<Clock::time_point> ended_at_, stopped_at_, terminated_at_;
  std::optional<int> asked_by_;  // the signal that asked for the end
  bool insisted_ = false;        // twice
  Supervised job_;
  const std::function<void(const Supervised&)>& goes_on_;
  std::string line_;
};

}  // namespace

void say_begin() {
  if (std::getenv(supervised_variable)) fmt::print(stderr, "{}\n", begin_mark);
}

void say_joining(int rank) {
  if (std::getenv(supervised_variable)) fmt::print(stderr, "{}{}\n", joining_mark, rank);
}

void say_step(int64_t steps) {
  if (std::getenv(supervised_variable)) fmt::print(stderr, "{}{}\n", step_mark, steps);
}

void say_blame(const std::string& host) {
  if (std::getenv(supervised_variable)) fmt::print(stderr, "{}{}\n", blame_mark, host);
}

void say_end(int code) {
  if (std::getenv(supervised_variable)) fmt::print(stderr, "{}{}\n", end_mark, code);
}

int code_for_launcher(int code) {
  return std::getenv(supervised_variable) ? fine : code;
}

bool kill_descendants() {
  const std::vector<pid_t> left = descendants(getpid());
  for (const pid_t process : left) kill(process, SIGKILL);
  return !left.empty();
}

int become_launcher(const std::vector<std::string>& line) {
  become(line[0], line);
  fmt::print(stderr, "piper: {} cannot be started: {}\n", line[0], std::strerror(errno));
  return run_failed;
}

Supervised supervise(const std::function<int()>& launcher, double to_begin,
                     const std::function<void(const Supervised&)>& goes_on) {
  return Supervisor(goes_on).run(launcher, to_begin);
}

}  // namespace piper
