// Where tokens come from. Samples have numbers over the whole run; what a number stands for depends on the seed alone,
// never on batches or placement.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/data/named_file.h"

namespace piper {

enum class DataKind {
  Synthetic,  // made by a hash, with structure that can be learned
  Reference,  // those of the reference decoder, the same in every system
  Text,       // the bytes of text files
  Tokens,     // files of whole numbers
};

enum class TokenWidth { Bits16, Bits32 };

/// `[data]` of a configuration.
struct DataConfig {
  DataKind kind = DataKind::Synthetic;
  std::vector<NamedFile> paths;           // text, tokens: files, folders, patterns such as docs/**/*.md
  TokenWidth width = TokenWidth::Bits16;  // tokens
  uint64_t seed = 0;                      // all but reference
};

/// What the model and the step ask of the data.
struct SampleShape {
  int64_t sequence = 1;    // tokens of a sample
  int64_t vocabulary = 1;  // of the model: every token is below
};

class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// A sample and, one further, its targets: `sequence + 1` tokens. Numbers count from 0. Several threads may ask at
  /// once. E702: a token that the model does not know.
  virtual Checked sample(int64_t number, std::span<int64_t> tokens) const = 0;

  /// All tokens are below.
  virtual int64_t vocabulary() const = 0;

  /// How much there is, for people: `3 files, 1.20 MiB, 9600 samples of 128 tokens`.
  virtual std::string describe() const = 0;
};

/// E108: a file cannot be read, or none matches. E701: not enough for one sample. E702: tokens that the model does not
/// know. E703: not a file of tokens.
Result<std::unique_ptr<TokenSource>> open_tokens(const DataConfig& config, const SampleShape& shape);

}  // namespace piper
