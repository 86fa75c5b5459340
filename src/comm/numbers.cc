#include "comm/numbers.h"

#include <algorithm>
#include <cstring>

#include "base/bfloat.h"

namespace piper {
namespace {

template <class T>
void sum_plain(std::span<const std::byte* const> from, std::byte* to, size_t bytes) {
  constexpr size_t block = 1024;  // of the sum stays in the cache while all members pass
  T total[block];
  const size_t count = bytes / sizeof(T);
  for (size_t begin = 0; begin < count; begin += block) {
    const size_t n = std::min(block, count - begin);
    std::memcpy(total, from[0] + begin * sizeof(T), n * sizeof(T));
    for (size_t m = 1; m < from.size(); ++m) {
      const T* next = reinterpret_cast<const T*>(from[m]) + begin;
      for (size_t i = 0; i < n; ++i) total[i] += next[i];
    }
    std::memcpy(to + begin * sizeof(T), total, n * sizeof(T));
  }
}

void sum_bfloat(std::span<const std::byte* const> from, std::byte* to, size_t bytes) {
  const size_t count = bytes / sizeof(BFloat);
  for (size_t i = 0; i < count; ++i) {
    float total = 0;
    for (const std::byte* member : from) total += to_float(reinterpret_cast<const BFloat*>(member)[i]);
    reinterpret_cast<BFloat*>(to)[i] = to_bfloat(total);
  }
}

}  // namespace

int64_t bytes_of(Number number) {
  constexpr int64_t bytes[] = {8, 4, 2};
  return bytes[static_cast<int>(number)];
}

void sum(std::span<const std::byte* const> from, std::byte* to, size_t bytes, Number of) {
  switch (of) {
    case Number::Float64:
      return sum_plain<double>(from, to, bytes);
    case Number::Float32:
      return sum_plain<float>(from, to, bytes);
    case Number::BFloat16:
      return sum_bfloat(from, to, bytes);
  }
}

void add(const std::byte* from, std::byte* to, size_t bytes, Number of) {
  const std::byte* both[] = {to, from};
  sum(both, to, bytes, of);
}

}  // namespace piper
