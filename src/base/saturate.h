// Arithmetic on sizes that came from users: too large stays "too large" instead of overflowing.
#pragma once

#include <cstdint>

namespace piper {

constexpr int64_t saturated = int64_t{1} << 62;

inline int64_t saturating_multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > saturated) return saturated;
  return product;
}

inline int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum) || sum > saturated) return saturated;
  return sum;
}

inline int64_t ceil_divide(int64_t a, int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace piper
