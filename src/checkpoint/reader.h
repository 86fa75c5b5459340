// Reads a checkpoint, every byte compared with its sum, or a model folder of transformers, which has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/layout.h"
#include "checkpoint/run_state.h"

namespace piper {

struct VerifiedFolder;

/// One folder, open for reading. All functions may be called from several threads.
class FolderReader {
 public:
  /// A checkpoint. Checks piper.json, sizes and headers of all files, and the sums of what is not tensors. E901: no
  /// checkpoint; E902: damaged, or a file is missing.
  static Result<std::unique_ptr<FolderReader>> open(const std::string& folder);
  /// Any model folder of transformers: an index and its files, or one `model.safetensors`. It has no sums; headers and
  /// index are checked.
  static Result<std::unique_ptr<FolderReader>> open_foreign(const std::string& folder);
  /// Either of them. The error of what is neither is that of `open`.
  static Result<std::unique_ptr<FolderReader>> open_any(const std::string& folder);
  /// A checkpoint, every block of which is verified, on as many threads as there are cores.
  static VerifiedFolder open_verified(const std::string& folder);
  ~FolderReader();

  /// Bytes of a tensor, from its byte `first` on. Verifies every block that it touches, each once. E902 names file,
  /// bytes and tensors of a damaged one. The range is within the tensor.
  Checked read(std::string_view tensor, int64_t first, std::span<std::byte> to) const;

  const std::string& folder() const { return folder_; }
  /// Files, and which bytes of them are which tensor. Heads are empty.
  const FolderLayout& layout() const { return layout_; }
  bool is_foreign() const { return !state_; }
  /// Of a checkpoint, not of a foreign folder.
  const RunState& state() const;

 private:
  struct OpenFile;
  explicit FolderReader(std::string folder);
  std::vector<Diagnostic> load();
  Checked load_file(const FileSums& sums);
  Checked load_foreign();
  Checked add_file(const std::string& name);
  Checked add_tensors(std::vector<TensorEntry> tensors);
  Checked check_heads() const;
  std::vector<Diagnostic> verify() const;
  Checked verify_block(size_t file, int64_t block) const;
  Checked check_sum(size_t file, int64_t block, std::span<const std::byte> bytes) const;
  Checked read_in_block(size_t file, int64_t begin, std::span<std::byte> to) const;
  std::string path_of(std::string_view name) const;

  const std::string folder_;
  FolderLayout layout_;
  std::vector<OpenFile> open_;  // by file of the layout
  std::optional<RunState> state_;
};

struct VerifiedFolder {
  std::unique_ptr<FolderReader> reader;  // nothing if there is a problem
  std::vector<Diagnostic> problems;      // one for each damaged block or file, in the order of files and bytes
};

}  // namespace piper
