#include "train/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "train/data/mix.h"

namespace piper {
namespace {

constexpr int64_t checked_at_once = 1 << 24;  // tokens looked at before the run; the others when they are needed
constexpr int64_t bytes_in_text = 256;

}  // namespace

Diagnostic Corpus::too_short() const {
  return error(ErrorCode::E701, source_.paths[0].where,
               fmt::format("the data has {} tokens; a sample takes {} and its last target one more", size_,
                           shape_.sequence))
      .help("add files to paths, or make sequence in [step] smaller");
}

Diagnostic Corpus::unknown_token(const TokenFile& file, int64_t position) const {
  return error(ErrorCode::E702, file.file.where,
               fmt::format("token {} at position {} of \"{}\" is not below the vocabulary of the model, {}",
                           file.token(position), position, file.file.path, shape_.vocabulary))
      .help(fmt::format("raise vocab in [model], or check that the file has {} numbers made for this vocabulary",
                        name(file.width)));
}

/// So that data made for another vocabulary is noticed at once.
Checked Corpus::check_first_tokens() const {
  for (const Part& part : parts_)
    for (int64_t i = 0; i < part.file.size() && part.begin + i < checked_at_once; ++i)
      if (is_unknown(part.file.token(i))) return unknown_token(part.file, i);
  return Ok{};
}

std::vector<int64_t> Corpus::document_ends() const {
  std::vector<int64_t> out;
  for (const Part& part : parts_)
    for (const int64_t end : part.file.ends) out.push_back(part.begin + end);
  if (!out.empty() && out.back() < size_) out.push_back(size_);
  return out;
}

Checked Corpus::check_documents(std::string_view needed_for) const {
  for (const Part& part : parts_)
    if (part.file.ends.empty() && part.file.size() > 0 && config_.kind == DataKind::Tokens)
      return error(ErrorCode::E111, part.file.file.where,
                   fmt::format("\"{}\" does not say where its documents end, which {} needs", part.file.file.path,
                               needed_for))
          .help(fmt::format("leave {} out, or prepare the data with piper data prepare", needed_for));
  return Ok{};
}

Checked Corpus::find_samples() {
  if (config_.attention == AttentionWithin::Document) {
    PIPER_CHECK(check_documents("attention"));
    ends_ = document_ends();
  }
  if (config_.packing == DocumentPacking::Carry) {
    if (size_ <= shape_.sequence) return too_short();
    samples_ = (size_ - 1) / shape_.sequence;
    return Ok{};
  }
  PIPER_CHECK(check_documents("packing"));
  int64_t begin = 0, next = 0;  // next: where a sample may begin
  for (const int64_t end : document_ends()) {
    const bool whole = config_.packing == DocumentPacking::None;
    if (begin >= next && end - begin > 1) {
      ranges_.push_back({begin, std::min(whole ? end : size_, begin + shape_.sequence + 1)});
      if (!whole) next = begin + shape_.sequence;
    }
    begin = end;
  }
  samples_ = static_cast<int64_t>(ranges_.size());
  if (samples_ == 0) return too_short();
  return Ok{};
}

Checked Corpus::hold_back(DataSplit split) {
  if (config_.validation == 0) return Ok{};
  const int64_t all = samples_;
  const auto held = static_cast<int64_t>(std::llround(static_cast<double>(all) * config_.validation));
  first_ = split == DataSplit::Training ? 0 : all - held;
  samples_ = split == DataSplit::Training ? all - held : held;
  if (samples_ > 0 && held > 0) return Ok{};
  return error(ErrorCode::E701, source_.paths[0].where,
               fmt::format("validation = {} takes {} of the {} samples", config_.validation, held, all))
      .help("some must be left for training, and some for validation");
}

Result<std::unique_ptr<Corpus>> Corpus::open(const DataConfig& config, size_t number, const SampleShape& shape,
                                             DataSplit split) {
  const SourceConfig& source = config.sources[number];
  invariant(!source.paths.empty(), "data from files names at least one");
  const bool text = config.kind == DataKind::Text;
  if (text && shape.vocabulary < bytes_in_text)
    return error(ErrorCode::E702, source.paths[0].where,
                 fmt::format("text has {} tokens, one for each byte; the model knows {}", bytes_in_text,
                             shape.vocabulary))
        .help(fmt::format("write vocab = {} in [model]", bytes_in_text));
  PIPER_TRY(std::vector<TokenFile> files, open_token_files(config, source));
  std::unique_ptr<Corpus> corpus(new Corpus(config, number, shape));
  for (TokenFile& file : files) {
    const int64_t size = file.size();
    corpus->parts_.push_back({std::move(file), corpus->size_});
    corpus->size_ += size;
  }
  PIPER_CHECK(corpus->find_samples());
  PIPER_CHECK(corpus->hold_back(split));
  if (!text) PIPER_CHECK(corpus->check_first_tokens());
  return corpus;
}

Corpus::Range Corpus::range(int64_t sample) const {
  if (!ranges_.empty()) return ranges_[static_cast<size_t>(sample)];
  return {sample * shape_.sequence, (sample + 1) * shape_.sequence + 1};
}

/// Which of the samples in the order of the files comes as sample `number`.
int64_t Corpus::place(int64_t number) const {
  const int64_t epoch = number / samples_, at = number % samples_;
  const int64_t window = std::min(config_.shuffle_window, samples_), begin = at / window * window;
  const int64_t count = std::min(window, samples_ - begin);
  const uint64_t key = mix64(key_, static_cast<uint64_t>(epoch)) + static_cast<uint64_t>(begin) * 0x9e3779b97f4a7c15u;
  return first_ + begin +
         static_cast<int64_t>(shuffled(static_cast<uint64_t>(at - begin), static_cast<uint64_t>(count), key));
}

void Corpus::copy(Range range, std::span<int64_t> tokens, std::span<int64_t> targets) const {
  auto part = std::upper_bound(parts_.begin(), parts_.end(), range.begin,
                               [](int64_t position, const Part& p) { return position < p.begin; }) -
              1;
  for (int64_t at = range.begin; at < range.end; ++part) {
    const int64_t from = at - part->begin, count = std::min(range.end - at, part->file.size() - from);
    const auto place = static_cast<size_t>(at - range.begin), wanted = static_cast<size_t>(count);
    // what follows a token is its target: one place earlier
    const size_t here = std::min(wanted, tokens.size() - place), skip = place == 0 ? 1 : 0;
    part->file.copy(from, tokens.subspan(place, here));
    part->file.copy(from + static_cast<int64_t>(skip), targets.subspan(place + skip - 1, wanted - skip));
    if (part->file.counted)
      for (size_t i = skip; i < wanted; ++i)
        if (!part->file.is_counted(from + static_cast<int64_t>(i))) targets[place + i - 1] = left_out_target;
    at += count;
  }
}

/// Padding follows the last document as if it belonged to it.
void Corpus::places(int64_t number, std::span<int64_t> places) const {
  const int64_t begin = range(place(number)).begin;
  auto end = std::ranges::upper_bound(ends_, begin);
  int64_t first = begin;  // of the document
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t at = begin + static_cast<int64_t>(i);
    for (; end != ends_.end() && *end <= at; ++end) first = *end;
    places[i] = at - first;
  }
}

Checked Corpus::sample(int64_t number, std::span<int64_t> tokens, std::span<int64_t> targets) const {
  const Range of = range(place(number));
  const auto length = static_cast<size_t>(of.end - of.begin);  // at least two
  copy(of, tokens, targets);
  if (length <= tokens.size()) {  // the end is padded, with any token
    std::fill(tokens.begin() + static_cast<std::ptrdiff_t>(length), tokens.end(), 0);
    std::fill(targets.begin() + static_cast<std::ptrdiff_t>(length) - 1, targets.end(), left_out_target);
  }
  for (auto end = std::ranges::upper_bound(ends_, of.begin); end != ends_.end() && *end < of.end; ++end)
    targets[static_cast<size_t>(*end - of.begin) - 1] = left_out_target;  // of another document
  const auto fits = [&](int64_t token) { return !is_unknown(token); };
  const auto fits_or_left_out = [&](int64_t target) { return target == left_out_target || !is_unknown(target); };
  if (std::all_of(tokens.begin(), tokens.end(), fits) && std::all_of(targets.begin(), targets.end(), fits_or_left_out))
    return Ok{};
  for (const Part& part : parts_)
    for (int64_t at = std::max(of.begin, part.begin); at < std::min(of.end, part.begin + part.file.size()); ++at)
      if (is_unknown(part.file.token(at - part.begin))) return unknown_token(part.file, at - part.begin);
  internal_error("an unknown token is in a file");
}

Checked Corpus::check_length(int64_t samples) const {
  if (!source_.epochs || static_cast<double>(samples) <= *source_.epochs * static_cast<double>(samples_)) return Ok{};
  return error(ErrorCode::E701, source_.where,
               fmt::format("the run takes {} samples of a source that has {} and is seen {} times at most", samples,
                           samples_, *source_.epochs))
      .help(fmt::format("raise epochs to {:.2f}, or train for fewer steps",
                        std::ceil(100 * static_cast<double>(samples) / static_cast<double>(samples_)) / 100));
}

int64_t Corpus::vocabulary() const {
  return config_.kind == DataKind::Text ? bytes_in_text : shape_.vocabulary;
}

std::string Corpus::describe() const {
  int64_t bytes = 0;
  for (const Part& part : parts_) bytes += static_cast<int64_t>(part.file.memory.bytes().size());
  return fmt::format("{} file{}, {}, {} samples of {} tokens", parts_.size(), parts_.size() == 1 ? "" : "s",
                     human_bytes(bytes), samples_, shape_.sequence);
}

}  // namespace piper
