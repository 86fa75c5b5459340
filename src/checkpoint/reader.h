// Reads a checkpoint, or a model folder of transformers, and lets no damaged byte through.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/block_sums.h"
#include "checkpoint/layout.h"
#include "checkpoint/run_state.h"

namespace piper {

/// One folder, open for reading. All functions may be called from several threads.
class FolderReader {
 public:
  /// A checkpoint. Checks piper.json, sizes and headers of all files and the blocks that hold headers. E901: no
  /// checkpoint; E902: damaged, or a file is missing.
  static Result<std::unique_ptr<FolderReader>> open(const std::string& folder);
  /// Any model folder of transformers: an index and its files, or one `model.safetensors`. It has no sums; headers and
  /// index are checked.
  static Result<std::unique_ptr<FolderReader>> open_foreign(const std::string& folder);
  ~FolderReader();

  /// Bytes of a tensor, from its byte `first` on. Verifies every block that it touches, each once. E902 names file,
  /// tensors and bytes of a damaged one. The range is within the tensor.
  Checked read(std::string_view tensor, int64_t first, std::span<std::byte> to) const;

  /// Verifies every block of every file on so many threads (0: as many as there are cores): one E902 for each that is
  /// damaged, in the order of files and bytes.
  std::vector<Diagnostic> verify(int threads = 0) const;

  const std::string& folder() const { return folder_; }
  /// Files, and which bytes of them are which tensor. Heads are empty.
  const FolderLayout& layout() const { return layout_; }
  /// Of a checkpoint.
  const RunState& state() const;
  bool is_foreign() const { return !state_; }

 private:
  struct OpenFile;
  explicit FolderReader(std::string folder);
  Checked open_file(const std::string& name, std::optional<FileSums> sums);
  Checked check_block(const OpenFile& file, const StoredFile& stored, int64_t block, std::span<const std::byte>) const;
  Checked verify_block(int file, int64_t block) const;
  Checked read_within_block(int file, int64_t begin, std::span<std::byte> to) const;
  Checked read_index();

  const std::string folder_;
  FolderLayout layout_;
  std::vector<OpenFile> open_;  // by file
  std::optional<RunState> state_;
};

}  // namespace piper
