// Texts as tokens, and tokens as text: for prompts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/data/named_file.h"

namespace piper {

class TextTokens {
 public:
  virtual ~TextTokens() = default;
  virtual Result<std::vector<std::vector<int64_t>>> encode(const std::vector<std::string>& texts) = 0;
  virtual Result<std::vector<std::string>> decode(const std::vector<std::vector<int64_t>>& tokens) = 0;
  /// The token that ends a text, if there is one.
  virtual std::optional<int64_t> end() const { return {}; }
};

/// A token is a byte, as in data of kind text.
std::unique_ptr<TextTokens> byte_tokens();

/// As `piper data prepare` makes them, by a process of Python. E705: it cannot be started, or has no such tokenizer.
Result<std::unique_ptr<TextTokens>> open_tokenizer(const NamedFile& tokenizer);

}  // namespace piper
