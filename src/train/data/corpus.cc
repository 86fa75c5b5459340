#include "train/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "train/data/find_files.h"
#include "train/data/mix.h"
#include "train/data/sources.h"

namespace piper {
namespace {

constexpr int64_t checked_at_once = 1 << 24;  // tokens looked at before the run; the others when they are needed
constexpr int64_t bytes_in_text = 256;

template <class Token>
constexpr bool is_text = sizeof(Token) == 1;

template <class Token>
std::string_view dtype_name() {
  return sizeof(Token) == 2 ? "uint16" : "uint32";
}

/// Whole numbers and nothing else: no header, no half number.
template <class Token>
Checked check_numbers(const NamedFile& file, std::span<const std::byte> bytes) {
  constexpr std::string_view numpy = "\x93NUMPY";
  if (bytes.size() >= numpy.size() && std::memcmp(bytes.data(), numpy.data(), numpy.size()) == 0)
    return error(ErrorCode::E703, file.where,
                 fmt::format("\"{}\" is a NumPy file, with a header before its numbers", file.path))
        .help(fmt::format("write the numbers alone: array.astype(\"{}\").tofile(\"tokens.bin\")", dtype_name<Token>()));
  if (bytes.size() % sizeof(Token) != 0)
    return error(ErrorCode::E703, file.where,
                 fmt::format("\"{}\" has {} bytes, which is not a whole number of {} tokens", file.path, bytes.size(),
                             dtype_name<Token>()))
        .help("is dtype right, and was the file written to the end?");
  return Ok{};
}

}  // namespace

template <class Token>
int64_t Corpus<Token>::Part::token(int64_t position) const {
  Token token;
  std::memcpy(&token, memory.bytes().data() + static_cast<size_t>(position) * sizeof(Token), sizeof(Token));
  return token;
}

template <class Token>
Diagnostic Corpus<Token>::too_short(const NamedFile& file) const {
  return error(ErrorCode::E701, file.where,
               fmt::format("the data has {} tokens; a sample takes {} and its last target one more", size_,
                           shape_.sequence))
      .help("add files to paths, or make sequence in [step] smaller");
}

template <class Token>
Diagnostic Corpus<Token>::unknown_token(const Part& part, int64_t position) const {
  return error(ErrorCode::E702, part.file.where,
               fmt::format("token {} at position {} of \"{}\" is not below the vocabulary of the model, {}",
                           part.token(position), position, part.file.path, shape_.vocabulary))
      .help(fmt::format("raise vocab in [model], or check that the file has {} numbers made for this vocabulary",
                        dtype_name<Token>()));
}

template <class Token>
Checked Corpus<Token>::add(const NamedFile& file, bool named) {
  PIPER_TRY(MappedFile memory, MappedFile::open(file));
  if (memory.bytes().empty()) {
    if (!named) return Ok{};  // one of many
    return error(ErrorCode::E701, file.where, fmt::format("\"{}\" is empty", file.path))
        .help("is it the file you meant?");
  }
  if (!is_text<Token>) PIPER_CHECK(check_numbers<Token>(file, memory.bytes()));
  parts_.push_back({file, std::move(memory), size_});
  size_ += parts_.back().size();
  return Ok{};
}

/// So that data made for another vocabulary is noticed at once.
template <class Token>
Checked Corpus<Token>::check_first_tokens() const {
  for (const Part& part : parts_)
    for (int64_t i = 0; i < part.size() && part.begin + i < checked_at_once; ++i)
      if (part.token(i) >= shape_.vocabulary) return unknown_token(part, i);
  return Ok{};
}

template <class Token>
Result<TokenSourcePtr> Corpus<Token>::open(const DataConfig& config, const SampleShape& shape) {
  invariant(!config.paths.empty(), "data from files names at least one");
  if (is_text<Token> && shape.vocabulary < bytes_in_text)
    return error(ErrorCode::E702, config.paths[0].where,
                 fmt::format("text has {} tokens, one for each byte; the model knows {}", bytes_in_text,
                             shape.vocabulary))
        .help(fmt::format("write vocab = {} in [model]", bytes_in_text));
  std::unique_ptr<Corpus> corpus(new Corpus(config.seed, shape));
  for (const NamedFile& path : config.paths) {
    PIPER_TRY(const auto files, find_files(path));
    for (const NamedFile& file : files) PIPER_CHECK(corpus->add(file, file.path == path.path));
  }
  if (corpus->size_ <= shape.sequence) return corpus->too_short(config.paths[0]);
  if (!is_text<Token>) PIPER_CHECK(corpus->check_first_tokens());
  return TokenSourcePtr(std::move(corpus));
}

template <class Token>
Checked Corpus<Token>::sample(int64_t number, std::span<int64_t> tokens) const {
  const auto position = static_cast<uint64_t>(number), count = static_cast<uint64_t>(samples());
  const uint64_t epoch = position / count;
  int64_t at = static_cast<int64_t>(shuffled(position % count, count, mix64(seed_, epoch))) * shape_.sequence;
  auto part = std::upper_bound(parts_.begin(), parts_.end(), at,
                               [](int64_t position, const Part& p) { return position < p.begin; }) -
              1;
  for (int64_t& token : tokens) {
    if (at - part->begin == part->size()) ++part;
    const int64_t position = at++ - part->begin;
    token = part->token(position);
    if (token >= shape_.vocabulary) return unknown_token(*part, position);
  }
  return Ok{};
}

template <class Token>
int64_t Corpus<Token>::vocabulary() const {
  return is_text<Token> ? bytes_in_text : shape_.vocabulary;
}

template <class Token>
std::string Corpus<Token>::describe() const {
  return fmt::format("{} file{}, {}, {} samples of {} tokens", parts_.size(), parts_.size() == 1 ? "" : "s",
                     human_bytes(size_ * static_cast<int64_t>(sizeof(Token))), samples(), shape_.sequence);
}

Result<TokenSourcePtr> text_bytes(const DataConfig& config, const SampleShape& shape) {
  return Corpus<uint8_t>::open(config, shape);
}

Result<TokenSourcePtr> token_files(const DataConfig& config, const SampleShape& shape) {
  return config.width == TokenWidth::Bits16 ? Corpus<uint16_t>::open(config, shape)
                                            : Corpus<uint32_t>::open(config, shape);
}

}  // namespace piper
