#include <algorithm>
#include <bit>

#include "train/data/mix.h"
#include "train/data/sources.h"

namespace piper {
namespace {

constexpr int last_choice = 3;

class SyntheticTokens final : public TokenSource {
 public:
  SyntheticTokens(uint64_t seed, const SampleShape& shape)
      : words_(mix64(seed, 1)), choices_(mix64(seed, 2)), shape_(shape) {}

  Checked sample(int64_t number, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
    const auto vocabulary = static_cast<uint64_t>(shape_.vocabulary);
    uint64_t draw = mix64(choices_, static_cast<uint64_t>(number));
    uint64_t token = draw % vocabulary;
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int64_t>(token);
      draw = mix64(draw);
      const int choice = std::min(std::countr_zero(draw), last_choice);  // 1/2, 1/4, 1/8, 1/8
      token = mix64(words_ + static_cast<uint64_t>(choice), token) % vocabulary;
      targets[i] = static_cast<int64_t>(token);
    }
    return Ok{};
  }
  int64_t vocabulary() const override { return shape_.vocabulary; }
  std::string describe() const override { return "synthetic tokens"; }

 private:
  uint64_t words_, choices_;
  SampleShape shape_;
};

}  // namespace

TokenSourcePtr synthetic_tokens(uint64_t seed, const SampleShape& shape) {
  return std::make_unique<SyntheticTokens>(seed, shape);
}

}  // namespace piper
