// The hosts of a job, as users list them for mpirun.
#pragma once

#include <charconv>
#include <string>
#include <vector>

#include "base/result.h"

namespace piper {

struct Host {
  std::string name;
  std::string processes;  // that it takes, as written; empty: not said
  SourceRange where;
};
/// Processes that it takes: one, if that is not said.
inline int slots_of(const Host& host) {
  int out = 1;
  std::from_chars(host.processes.data(), host.processes.data() + host.processes.size(), out);
  return out;
}
/// A host a line, in the form of Open MPI (`node3 slots=4`) or of MPICH (`node3:4`); `#` begins a comment.
/// E805: there is none, or one that no name service knows.
Result<std::vector<Host>> read_hosts(const std::string& path);

/// A list in a file of its own, for a launcher; the file goes with it.
class ListOfHosts {
 public:
  explicit ListOfHosts(const std::vector<Host>& hosts);
  ~ListOfHosts();
  ListOfHosts(const ListOfHosts&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace piper
