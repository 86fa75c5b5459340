// A process that is given a line and answers with one.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace piper {

/// What it prints on standard error is kept for the case that it ends. It ends with its owner.
class ChildProcess {
 public:
  explicit ChildProcess(const std::vector<std::string>& command);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// False: it has ended.
  bool write(const std::string& line);
  /// None: it has ended.
  std::optional<std::string> read();
  /// After it has ended: why, as far as it is known.
  std::string end();

 private:
  std::string last_line();

  pid_t process_ = -1;
  int socket_ = -1, failure_ = 0;
  std::FILE* printed_;
};

}  // namespace piper
