// Which files a checkpoint consists of, and where every tensor lies in them. All of it follows from names, element
// types and global shapes: every process computes it alone and gets the same.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace piper {

/// One file: bytes that are known beforehand, then those of tensors.
struct StoredFile {
  std::string name;
  std::string head;                  // the header of tensors, or a whole text
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  int64_t bytes = 0;                 // of the whole file
};

struct TensorPlace {
  int file = 0;  // index in FolderLayout::files
  TensorEntry entry;
};

struct FolderLayout {
  std::vector<StoredFile> files;  // models, their index, optimizer, other texts
  std::map<std::string, TensorPlace, std::less<>> places;

  /// Nothing if there is no such tensor.
  const TensorPlace* find(std::string_view tensor) const;
  /// Of all files.
  int64_t bytes() const;
};

constexpr int64_t default_shard_size = 5'000'000'000;
constexpr std::string_view index_file = "model.safetensors.index.json";

/// Fills files in the given order of tensors, each up to `shard_size` bytes of tensors; a larger tensor gets a file of
/// its own. Models are in `model-0000i-of-0000N.safetensors`, with the index that transformers reads; what the
/// optimizer keeps is in `optimizer-0000i-of-0000M.safetensors`, if there is any. E903: a name twice, or none that JSON
/// can hold.
Result<FolderLayout> make_layout(std::vector<StoredTensor> model, std::vector<StoredTensor> optimizer,
                                 int64_t shard_size = default_shard_size);

/// One more file, with this text: transformers' `config.json`.
void add_text(FolderLayout& layout, std::string name, std::string text);

/// Whether a file of a checkpoint holds what the optimizer keeps.
bool is_optimizer_file(std::string_view name);

/// Names of the tensors that have bytes in a range of a file, for errors: `a, b and 3 more`; or `its header`.
std::string tensors_in(const StoredFile& file, int64_t begin, int64_t end);

}  // namespace piper
