// A stable 64-bit hash: equal on every machine and compiler, so that ranks can compare plans.
#pragma once

#include <cstdint>
#include <string_view>

namespace piper {

class StableHash {
 public:
  void add(uint64_t word) {
    state_ ^= word + 0x9e3779b97f4a7c15ull + (state_ << 6) + (state_ >> 2);
    state_ *= 0xff51afd7ed558ccdull;
    state_ ^= state_ >> 33;
  }
  void add(std::string_view text) {
    add(text.size());
    for (const char c : text) add(static_cast<unsigned char>(c));
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ull;
};

}  // namespace piper
