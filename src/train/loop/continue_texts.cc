#include "train/loop/continue_texts.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "train/data/mix.h"

namespace piper {
namespace {

/// As many texts as a batch has samples; samples without a text see a single token.
class Batch {
 public:
  Batch(EvaluationRun& run, std::vector<std::vector<int64_t>> texts, const TextLimits& limits)
      : run_(run), limits_(limits), texts_(std::move(texts)), open_(texts_.size(), true) {
    for (const auto& text : texts_) given_.push_back(text.size());
  }

  /// `number`: of the batch.
  std::vector<std::vector<int64_t>> run(uint64_t number) {
    for (int64_t t = 0; t < limits_.new_tokens && std::ranges::find(open_, true) != open_.end(); ++t) {
      const auto fill = [this](std::string_view input, int64_t first_sample, at::Tensor& into) {
        this->fill(input, first_sample, into);
      };
      const std::vector<int64_t> next = run_.next_tokens(fill, mix64(number, static_cast<uint64_t>(t)));
      for (size_t s = 0; s < texts_.size(); ++s) add(s, next[s]);
    }
    for (size_t s = 0; s < texts_.size(); ++s)
      texts_[s].erase(texts_[s].begin(), texts_[s].begin() + static_cast<std::ptrdiff_t>(given_[s]));
    return std::move(texts_);
  }

 private:
  void add(size_t text, int64_t token) {
    if (!open_[text]) return;
    if (token < 0 || token >= limits_.vocabulary || token == limits_.end) {  // no number where the model has diverged
      open_[text] = false;
      return;
    }
    texts_[text].push_back(token);
    open_[text] = static_cast<int64_t>(texts_[text].size()) < limits_.sequence;
  }

  void fill(std::string_view input, int64_t first_sample, at::Tensor& into) const {
    const int64_t samples = into.size(0), each = into.numel() / samples;
    int64_t* to = into.mutable_data_ptr<int64_t>();
    std::fill_n(to, into.numel(), 0);
    for (int64_t s = 0; s < samples; ++s, to += each) {
      const auto number = static_cast<size_t>(first_sample + s);
      const bool empty = number >= texts_.size();
      if (input == "sample") *to = first_sample + s;
      if (input == "places") std::iota(to, to + each, 0);  // a text is one document
      if (empty) continue;
      if (input == "last") *to = static_cast<int64_t>(texts_[number].size()) - 1;
      if (input == "tokens") std::ranges::copy(texts_[number], to);
    }
  }

  EvaluationRun& run_;
  const TextLimits& limits_;
  std::vector<std::vector<int64_t>> texts_;
  std::vector<bool> open_;  // it goes on
  std::vector<size_t> given_;
};

}  // namespace

std::vector<std::vector<int64_t>> continue_texts(EvaluationRun& run, const std::vector<std::vector<int64_t>>& texts,
                                                 const TextLimits& limits) {
  const auto batch = static_cast<size_t>(run.captured().graph()->step.batch);
  std::vector<std::vector<int64_t>> out;
  for (size_t first = 0; first < texts.size(); first += batch) {
    const size_t count = std::min(batch, texts.size() - first);
    const auto begin = texts.begin() + static_cast<std::ptrdiff_t>(first);
    std::ranges::move(Batch(run, {begin, begin + static_cast<std::ptrdiff_t>(count)}, limits).run(first / batch),
                      std::back_inserter(out));
  }
  return out;
}

}  // namespace piper
