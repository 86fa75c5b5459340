// Where tokens come from. Samples have numbers over the whole run; what a number stands for depends on the
// configuration and its seed alone, never on batches or placement.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
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
  Tokens,     // data folders, files of whole numbers
};

/// Of a token in a file, in bytes.
enum class TokenWidth { Bits8 = 1, Bits16 = 2, Bits32 = 4, Bits64 = 8 };

/// How documents become samples.
enum class DocumentPacking {
  Carry,     // one after the other; what does not fit into a sample goes on in the next
  Truncate,  // one after the other; what does not fit into a sample is cut off, the next begins with a document
  None,      // each is a sample, cut off or padded
};

/// Which targets the loss counts.
enum class LossOn {
  All,
  Completions,  // those that the data says
};

/// What a token of a sample sees.
enum class AttentionWithin {
  Sample,    // all tokens before it
  Document,  // those of its document
};

/// Files with a share in the samples.
struct SourceConfig {
  std::vector<NamedFile> paths;    // files, folders, patterns such as docs/**/*.md
  double weight = 1;               // relative to the other sources
  std::optional<double> epochs{};  // most times that a run sees its samples; none: as often as it needs
  SourceRange where{};
};

/// `[data]` of a configuration.
struct DataConfig {
  DataKind kind = DataKind::Synthetic;
  std::vector<SourceConfig> sources = {};  // text, tokens
  TokenWidth width = TokenWidth::Bits16;   // of files that do not say it themselves
  DocumentPacking packing = DocumentPacking::Carry;
  AttentionWithin attention = AttentionWithin::Sample;
  std::optional<LossOn> loss = {};  // none: all, if the data says nothing else
  /// So many neighbours are shuffled; 1: the order is that of the files.
  int64_t shuffle_window = std::numeric_limits<int64_t>::max();
  double validation = 0;  // share of every source's samples that training does not see: its last
  uint64_t seed = 0;      // all but reference
};

/// Whether some targets are left out of the loss, which is then a mean over the others.
inline bool leaves_out_targets(const DataConfig& config) {
  return config.loss == LossOn::Completions || config.packing != DocumentPacking::Carry ||
         config.attention == AttentionWithin::Document;
}

/// Which samples of the data.
enum class DataSplit { Training, Validation };

/// What the model and the step ask of the data.
struct SampleShape {
  int64_t sequence = 1;    // tokens of a sample
  int64_t vocabulary = 1;  // of the model: every token is below
};

/// The target of a token whose successor the loss does not count; PyTorch's `ignore_index`.
constexpr int64_t left_out_target = -100;

class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// A sample, `sequence` tokens, and the targets of each: its successor, or `left_out_target`. Numbers count from 0.
  /// Several threads may ask at once. E702: a token that the model does not know.
  virtual Checked sample(int64_t number, std::span<int64_t> tokens, std::span<int64_t> targets) const = 0;

  /// Of every token of a sample: how many of its document are before it in the sample. Where documents do not matter, a
  /// sample is one.
  virtual void places(int64_t number, std::span<int64_t> places) const;

  /// E701: a source has less than the first so many samples take, however often it may be seen.
  virtual Checked check_length(int64_t) const { return Ok{}; }

  /// All tokens are below.
  virtual int64_t vocabulary() const = 0;

  /// How much there is, for people: `3 files, 1.20 MiB, 9600 samples of 128 tokens`.
  virtual std::string describe() const = 0;
};

/// E108: a file cannot be read, or none matches. E111: what the data needs is not configured. E701: not enough for one
/// sample. E702: tokens that the model does not know. E703: not a file of tokens.
Result<std::unique_ptr<TokenSource>> open_tokens(const DataConfig& config, const SampleShape& shape,
                                                 DataSplit split = DataSplit::Training);

}  // namespace piper
