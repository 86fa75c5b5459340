// Defined for all systems that are compared by it, so in 32 bits and without a seed.
#include "train/data/mix.h"
#include "train/data/sources.h"

namespace piper {
namespace {

class ReferenceTokens final : public TokenSource {
 public:
  explicit ReferenceTokens(const SampleShape& shape) : shape_(shape) {}

  Checked sample(int64_t number, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
    int64_t token = mix32(static_cast<uint32_t>(static_cast<uint64_t>(number) + 1)) % shape_.vocabulary;
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = token;
      token = targets[i] = (5 * token + 7) % shape_.vocabulary;
    }
    return Ok{};
  }
  int64_t vocabulary() const override { return shape_.vocabulary; }
  std::string describe() const override { return "tokens of the reference decoder"; }

 private:
  SampleShape shape_;
};

}  // namespace

TokenSourcePtr reference_tokens(const SampleShape& shape) {
  return std::make_unique<ReferenceTokens>(shape);
}

}  // namespace piper
