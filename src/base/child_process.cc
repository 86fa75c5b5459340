#include "base/child_process.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

extern char** environ;

namespace piper {

ChildProcess::ChildProcess(const std::vector<std::string>& command) : printed_(std::tmpfile()) {
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

ChildProcess::~ChildProcess() {
  if (socket_ >= 0) close(socket_);  // which ends it
  if (process_ > 0) waitpid(process_, nullptr, 0);
  if (printed_) std::fclose(printed_);
}

bool ChildProcess::write(const std::string& line) {
  const std::string all = line + "\n";
  for (size_t done = 0; done < all.size();) {
    const ssize_t sent = send(socket_, all.data() + done, all.size() - done, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    done += static_cast<size_t>(sent);
  }
  return true;
}

std::optional<std::string> ChildProcess::read() {
  std::string line;
  for (char c = 0; ::read(socket_, &c, 1) == 1;) {
    if (c == '\n') return line;
    line += c;
  }
  return std::nullopt;
}

std::string ChildProcess::end() {
  if (process_ <= 0) return std::strerror(failure_ ? failure_ : errno);
  int status = 0;
  waitpid(process_, &status, 0);
  process_ = -1;
  if (WIFSIGNALED(status)) return fmt::format("it was ended by signal {}", WTERMSIG(status));
  const std::string last = last_line();
  return last.empty() ? fmt::format("it ended with code {}", WEXITSTATUS(status)) : last;
}

std::string ChildProcess::last_line() {
  std::rewind(printed_);
  std::string line, last;
  for (int c = 0; (c = std::fgetc(printed_)) != EOF;) {
    if (c != '\n') line += static_cast<char>(c);
    if (c == '\n' && !line.empty()) last = std::exchange(line, {});
  }
  return line.empty() ? last : line;
}

}  // namespace piper
