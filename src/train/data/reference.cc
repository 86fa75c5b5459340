// Defined for all systems that are compared by it, so in 32 bits and without a seed.
#include "train/data/mix.h"
#include "train/data/sources.h"

namespace piper {
namespace {

class ReferenceTokens final : public TokenSource {
 public:
  explicit ReferenceTokens(const BatchShape& shape) : shape_(shape) {}

  Checked sample(int64_t step, int64_t index, std::span<int64_t> tokens) const override {
    const auto number =
        static_cast<uint64_t>(step) * static_cast<uint64_t>(shape_.batch) + static_cast<uint64_t>(index);
    int64_t token = mix32(static_cast<uint32_t>(number + 1)) % shape_.vocabulary;
    for (int64_t& out : tokens) {
      out = token;
      token = (5 * token + 7) % shape_.vocabulary;
    }
    return Ok{};
  }
  int64_t vocabulary() const override { return shape_.vocabulary; }
  std::string describe() const override { return "tokens of the reference decoder"; }

 private:
  BatchShape shape_;
};

}  // namespace

TokenSourcePtr reference_tokens(const BatchShape& shape) {
  return std::make_unique<ReferenceTokens>(shape);
}

}  // namespace piper
