// A disk that loses power: what was not synced may be gone. It may also be there: disks write when they like. Where
// several write a file, each syncs its own writes only, as hosts do on a network file system.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file_calls.h"
#include "checkpoint/sample_folder.h"

namespace piper::checkpoint_tests {

/// One at a time: its calls are functions without an object.
class PowerLoss {
 public:
  /// Thrown by the call behind the last one that was made.
  struct Now {};

  /// After so many calls. What is below `root` now is safe.
  PowerLoss(std::string root, int64_t calls);
  ~PowerLoss();
  FileCalls calls() const;

  /// Makes of `root` what a disk may have after it. Of what was not synced, each piece stays or goes at random: bytes
  /// of files, names in folders, changes of names.
  void lose(Random& random);

 private:
  struct Change {
    std::string from, to;
    bool exchanged;
  };
  using Inode = uint64_t;

  void count();
  void written(int file, int64_t at, int64_t bytes);
  void synced(int file);
  void undo(const Change& change);
  using Writes = std::vector<std::pair<int64_t, int64_t>>;  // begin and bytes
  void lose_bytes(const std::string& path, Random& random);
  bool is_safe(const std::string& path) const;
  static PowerLoss* current;

  const std::string root_;
  int64_t left_;
  std::set<Inode> old_;                              // files and folders that were there before
  std::map<Inode, std::map<int, Writes>> unsynced_;  // by open file
  std::set<Inode> synced_files_;                     // at least once: their size is there
  std::map<Inode, std::set<std::string>> names_;     // of folders, when they were synced
  std::vector<Change> changes_;                      // not synced
};

}  // namespace piper::checkpoint_tests
