// Files one after another as one long sequence of tokens, cut into samples.
#pragma once

#include <string_view>
#include <vector>

#include "train/data/mapped_file.h"
#include "train/data/token_source.h"

namespace piper {

/// `Token` is how one token lies in a file: uint8_t, uint16_t or uint32_t, the lower byte first.
///
/// Sample i of an epoch is the i-th of all pieces of `sequence` tokens in an order shuffled anew for every epoch, so
/// each piece is seen once before any is seen again. What is left at the end, less than a sample, is never seen.
template <class Token>
class Corpus final : public TokenSource {
 public:
  static Result<std::unique_ptr<TokenSource>> open(const DataConfig& config, const SampleShape& shape);

  Checked sample(int64_t number, std::span<int64_t> tokens) const override;
  int64_t vocabulary() const override;
  std::string describe() const override;

 private:
  struct Part {
    NamedFile file;
    MappedFile memory;
    int64_t begin;  // its first token in the sequence
    int64_t size() const { return static_cast<int64_t>(memory.bytes().size() / sizeof(Token)); }
    int64_t token(int64_t position) const;
  };

  Corpus(uint64_t seed, const SampleShape& shape) : seed_(seed), shape_(shape) {}
  Checked add(const NamedFile& file, bool named);
  Checked check_first_tokens() const;
  Diagnostic too_short(const NamedFile& file) const;
  Diagnostic unknown_token(const Part& part, int64_t position) const;
  int64_t samples() const { return (size_ - 1) / shape_.sequence; }

  uint64_t seed_;
  SampleShape shape_;
  std::vector<Part> parts_;  // none is empty
  int64_t size_ = 0;
};

}  // namespace piper
