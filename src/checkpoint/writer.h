// Writes a checkpoint: every process its own bytes, in place, into a folder that gets its name when all are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/block_sums.h"
#include "checkpoint/file_calls.h"
#include "checkpoint/layout.h"
#include "checkpoint/run_state.h"

namespace piper {

/// Bytes of a write -> how many of them there were.
using WriteSizes = std::map<int64_t, int64_t>;
struct WriteCounts {
  int64_t bytes = 0, writes = 0;
  int64_t smallest = 0, median = 0;  // bytes of a write
};
WriteCounts count(const WriteSizes& sizes);

/// One save of one process. The order among processes: one calls `prepare`; then all others `open`, if they have
/// something to write; all `write`; the others `sync` and give their `ranges` to the first, which calls `commit`. Until
/// then the folder is `step-XXXXXXXX.partial`. Every error is E903 and names the file and the reason of the system.
class FolderWriter {
 public:
  /// Makes the folder in `parent` (made too if it is missing), without leftovers of an earlier try: all files at their
  /// full size, heads written.
  static Result<std::unique_ptr<FolderWriter>> prepare(const std::string& parent, int64_t step,
                                                       std::shared_ptr<const FolderLayout> layout,
                                                       const FileCalls& calls = system_calls);
  /// Joins a folder that another process has prepared.
  static Result<std::unique_ptr<FolderWriter>> open(const std::string& parent, int64_t step,
                                                    std::shared_ptr<const FolderLayout> layout,
                                                    const FileCalls& calls = system_calls);
  ~FolderWriter();

  /// All bytes, at this place of a file. From any thread.
  Checked write(int file, int64_t begin, std::span<const std::byte> bytes);
  /// What this process wrote is on the disk.
  Checked sync();
  /// Sums of what this process wrote, neighbours joined.
  Result<std::vector<SummedRange>> ranges() const;

  /// Only after `prepare`, when all other processes have synced. `ranges`: of all processes, this one included. Every
  /// byte of every file must have been written once. Then the folder has its name, and takes the place of one that had
  /// it.
  Checked commit(const RunState& state, std::vector<SummedRange> ranges);
  /// Deletes the folder that was not committed.
  Checked abandon();

  /// Of what was given to `write`; at most a block each.
  WriteSizes sizes() const;
  const FolderLayout& layout() const { return *layout_; }

 private:
  FolderWriter(const std::string& parent, int64_t step, std::shared_ptr<const FolderLayout> layout,
               const FileCalls& calls);
  Checked make_parent(const std::string& path);
  Checked make_folder();
  Checked make_file(int file);
  Result<int> descriptor(int file);
  Checked write_all(int descriptor, const std::string& path, std::span<const std::byte> bytes, int64_t at);
  Checked sync_folder(const std::string& path);
  Checked write_piper_json(const std::string& text);
  Checked give_name();

  const std::string parent_, name_, partial_;  // partial_: the whole path
  const std::shared_ptr<const FolderLayout> layout_;
  const FileCalls calls_;
  bool prepared_ = false;  // by this process

  mutable std::mutex mutex_;      // of all below
  std::vector<int> descriptors_;  // by file; -1: not open
  std::vector<SummedRange> ranges_;
  WriteSizes sizes_;
};

}  // namespace piper
