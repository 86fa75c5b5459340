#include "kernels/compile_kernels.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

extern char** environ;

namespace piper {
namespace {

/// A process that is given a line and answers with one. What it prints besides is kept for the case that it ends.
class Child {
 public:
  explicit Child(const std::vector<std::string>& command) : printed_(std::tmpfile()) {
    int ends[2];
    if (!printed_ || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    posix_spawn_file_actions_adddup2(&files, fileno(printed_), 2);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    failure_ = posix_spawnp(&process_, arguments[0], &files, nullptr, arguments.data(), environ);
    if (failure_ != 0) process_ = -1;
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    socket_ = ends[0];
  }
  ~Child() {
    if (socket_ >= 0) close(socket_);  // which ends it
    if (process_ > 0) waitpid(process_, nullptr, 0);
    if (printed_) std::fclose(printed_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// False: it has ended.
  bool write(const std::string& line) {
    const std::string all = line + "\n";
    for (size_t done = 0; done < all.size();) {
      const ssize_t sent = send(socket_, all.data() + done, all.size() - done, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      done += static_cast<size_t>(sent);
    }
    return true;
  }
  /// None: it has ended.
  std::optional<std::string> read() {
    std::string line;
    for (char c = 0; ::read(socket_, &c, 1) == 1;) {
      if (c == '\n') return line;
      line += c;
    }
    return std::nullopt;
  }
  /// After it has ended: why, as far as it is known.
  std::string end() {
    if (process_ <= 0) return std::strerror(failure_ ? failure_ : errno);
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    if (WIFSIGNALED(status)) return fmt::format("it was ended by signal {}", WTERMSIG(status));
    const std::string last = last_line();
    return last.empty() ? fmt::format("it ended with code {}", WEXITSTATUS(status)) : last;
  }

 private:
  std::string last_line() {
    std::rewind(printed_);
    std::string line, last;
    for (int c = 0; (c = std::fgetc(printed_)) != EOF;) {
      if (c != '\n') line += static_cast<char>(c);
      if (c == '\n' && !line.empty()) last = std::exchange(line, {});
    }
    return line.empty() ? last : line;
  }

  pid_t process_ = -1;
  int socket_ = -1, failure_ = 0;
  std::FILE* printed_;
};

/// Empty: it is done; otherwise why not.
std::string problem_in(const std::string& answer) {
  const auto json = nlohmann::json::parse(answer, nullptr, false);
  if (!json.is_object()) return fmt::format("the compiler answers \"{}\"", answer);
  return json.value("problem", "");
}

}  // namespace

void compile_kernels(const KernelCompiler& compiler, const std::vector<std::string>& folders,
                     const std::function<void(size_t folder, const std::string& problem)>& finished) {
  std::mutex mutex;
  size_t next = 0;
  const auto take = [&]() -> std::optional<size_t> {
    const std::lock_guard lock(mutex);
    return next < folders.size() ? std::optional(next++) : std::nullopt;
  };
  const auto done = [&](size_t folder, const std::string& problem) {
    const std::lock_guard lock(mutex);
    finished(folder, problem);
  };
  const auto work = [&] {
    std::unique_ptr<Child> child;
    std::string cannot_begin;
    while (const auto folder = take()) {
      if (!child && cannot_begin.empty()) {
        child = std::make_unique<Child>(
            std::vector<std::string>{compiler.python, "-c", compile_kernels_script, TORCH_VERSION});
        const auto greeting = child->read();
        cannot_begin = greeting ? problem_in(*greeting) : fmt::format("{}: {}", compiler.python, child->end());
      }
      if (!cannot_begin.empty()) {
        done(*folder, cannot_begin);
        continue;
      }
      const auto answer = child->write(folders[*folder]) ? child->read() : std::nullopt;
      done(*folder, answer ? problem_in(*answer) : fmt::format("the compiler's process ended: {}", child->end()));
      if (!answer) child.reset();  // the next one gets a new process
    }
  };
  const size_t processes = std::min(folders.size(), static_cast<size_t>(std::max(compiler.processes, 1)));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < processes; ++i) threads.emplace_back(work);
  if (processes > 0) work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace piper
