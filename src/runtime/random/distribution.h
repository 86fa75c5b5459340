// What words of random bits become. The same lines for CPUs and GPUs, so that both draw the same masks.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/random/philox.h"

namespace piper {

enum class Distribution {
  Bernoulli,    // 1 with probability `a`, otherwise 0
  Uniform,      // at least `a`, below `b`
  Normal,       // mean `a`, standard deviation `b`
  Exponential,  // rate `a`
  Integer,      // whole numbers: at least `a`, below `b`
};
struct Drawing {
  Distribution kind = Distribution::Bernoulli;
  double a = 0, b = 1;
};

/// Words that a number takes; `digits`: of the mantissa of its type.
constexpr PIPER_ON_BOTH int words_of(Distribution kind, int digits) {
  return kind == Distribution::Normal || kind == Distribution::Integer || (kind == Distribution::Uniform && digits > 32)
             ? 2
             : 1;
}

/// 1 or 0, from the whole word: `chance` is the probability times 2^32.
PIPER_ON_BOTH inline uint64_t bernoulli_chance(double probability) {
  return static_cast<uint64_t>(probability * 4294967296.0);
}

/// A number of a distribution other than Bernoulli. The second word is 0 where one is enough.
PIPER_ON_BOTH inline double drawn_number(const Drawing& drawing, int digits, uint32_t word, uint32_t second) {
  constexpr double unit = 1.0 / 4294967296.0;
  const double open = (word + 0.5) * unit;  // neither 0 nor 1: it has a logarithm
  switch (drawing.kind) {
    case Distribution::Uniform: {  // as many bits as the type has, so that it is never rounded to 1
      const uint64_t bits = uint64_t{word} << 32 | second;
      const double u = static_cast<double>(bits >> (64 - digits)) / static_cast<double>(uint64_t{1} << digits);
      return drawing.a + u * (drawing.b - drawing.a);
    }
    case Distribution::Normal:
      return drawing.a + drawing.b * std::sqrt(-2 * std::log(open)) * std::cos(6.283185307179586477 * unit * second);
    case Distribution::Exponential:
      return -std::log(open) / drawing.a;
    default: {  // the upper half of the product with their number
      const auto count = static_cast<uint64_t>(drawing.b - drawing.a);
      const uint64_t low = uint64_t{second} * (count & 0xffffffff), middle = uint64_t{second} * (count >> 32);
      const uint64_t other = uint64_t{word} * (count & 0xffffffff), high = uint64_t{word} * (count >> 32);
      const uint64_t carry = (low >> 32) + (middle & 0xffffffff) + (other & 0xffffffff);
      return drawing.a + static_cast<double>(high + (middle >> 32) + (other >> 32) + (carry >> 32));
    }
  }
}

}  // namespace piper
