// One source: files one after another as one long sequence of tokens, in which every sample has its place.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "train/data/token_file.h"
#include "train/data/token_source.h"

namespace piper {

/// Sample i of an epoch is the i-th of all samples in an order shuffled anew for every epoch, so each is seen once
/// before any is seen again.
class Corpus final : public TokenSource {
 public:
  /// `number`: among the sources of a mixture.
  static Result<std::unique_ptr<Corpus>> open(const DataConfig& config, size_t number, const SampleShape& shape,
                                              DataSplit split);

  Checked sample(int64_t number, std::span<int64_t> tokens, std::span<int64_t> targets) const override;
  void places(int64_t number, std::span<int64_t> places) const override;
  Checked check_length(int64_t samples) const override;
  int64_t vocabulary() const override;
  std::string describe() const override;

 private:
  struct Part {
    TokenFile file;
    int64_t begin;  // its first token in the sequence
  };
  /// Tokens of a sample, its last target included.
  struct Range {
    int64_t begin, end;
  };

  Corpus(const DataConfig& config, size_t number, const SampleShape& shape)
      : config_(config), source_(config.sources[number]), key_(config.seed + number), shape_(shape) {}
  Checked find_samples();
  Checked check_documents(std::string_view needed_for) const;
  Checked hold_back(DataSplit split);
  std::vector<int64_t> document_ends() const;
  Checked check_first_tokens() const;
  bool is_unknown(int64_t token) const { return token < 0 || token >= shape_.vocabulary; }
  Diagnostic too_short() const;
  Diagnostic unknown_token(const TokenFile& file, int64_t position) const;

  Range range(int64_t sample) const;
  int64_t place(int64_t number) const;
  /// Copies tokens, and which of them count, from a range.
  void copy(Range range, std::span<int64_t> tokens, std::span<int64_t> targets) const;

  const DataConfig config_;
  const SourceConfig source_;
  uint64_t key_;
  SampleShape shape_;
  std::vector<Part> parts_;          // none is empty
  int64_t size_ = 0;                 // tokens
  std::vector<Range> ranges_;        // of samples; empty: they follow each other
  std::vector<int64_t> ends_;        // of documents, where attention stays within them
  int64_t first_ = 0, samples_ = 0;  // of the split, in the order of the files
};

}  // namespace piper
