// A file of tokens in memory, with what is known of its documents.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "train/data/mapped_file.h"
#include "train/data/token_source.h"

namespace piper {

struct TokenFile {
  NamedFile file;
  MappedFile memory;  // the lower byte of a token first
  TokenWidth width = TokenWidth::Bits16;
  std::vector<int64_t> ends = {};          // of its documents, each as the tokens before it; empty: not known
  std::optional<MappedFile> counted = {};  // a byte a token, 0: the loss does not count it; none: it counts all

  int64_t size() const { return static_cast<int64_t>(memory.bytes().size() / static_cast<size_t>(width)); }
  int64_t token(int64_t position) const;
  bool is_counted(int64_t position) const {
    return !counted || counted->bytes()[static_cast<size_t>(position)] != std::byte{0};
  }
  /// Tokens from a position on.
  void copy(int64_t position, std::span<int64_t> into) const;
};

/// `uint16`
std::string_view name(TokenWidth width);

/// Adds text, each file a document, or plain whole numbers. `named`: an empty one is E701, not left out.
Checked add_plain_file(const NamedFile& file, TokenWidth width, bool named, std::vector<TokenFile>& to);

/// Adds what Megatron has written: `prefix`.bin and `prefix`.idx. E703: they are not.
bool is_megatron(const std::string& prefix);
Checked add_megatron(const NamedFile& prefix, std::vector<TokenFile>& to);

/// Adds a folder that `piper data prepare` has made (docs/data.md). E703: it is not one, or not complete.
bool is_data_folder(const std::string& path);
Checked add_data_folder(const NamedFile& folder, std::vector<TokenFile>& to);

/// All files of a source. E111: some tokens do not count, and [data] does not say what it wants.
Result<std::vector<TokenFile>> open_token_files(const DataConfig& config, const SourceConfig& source);

}  // namespace piper
