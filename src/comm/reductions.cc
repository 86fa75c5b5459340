#include "comm/reductions.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/bfloat.h"

namespace piper {
namespace {

template <class T, class Join>
void fold(std::span<const std::byte* const> from, std::byte* to, size_t bytes, Join join) {
  constexpr size_t block = 1024;  // of the result stays in the cache while all members pass
  T total[block];
  const size_t count = bytes / sizeof(T);
  for (size_t begin = 0; begin < count; begin += block) {
    const size_t n = std::min(block, count - begin);
    std::memcpy(total, from[0] + begin * sizeof(T), n * sizeof(T));
    for (size_t m = 1; m < from.size(); ++m) {
      const T* next = reinterpret_cast<const T*>(from[m]) + begin;
      for (size_t i = 0; i < n; ++i) total[i] = join(total[i], next[i]);
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

/// A NaN is greater than every other value.
template <class T>
T greater(T a, T b) {
  return b > a || b != b ? b : a;
}

}  // namespace

int64_t bytes_of(DataType dtype) {
  constexpr int64_t bytes[] = {8, 4, 2};
  return bytes[static_cast<int>(dtype)];
}

void sum(std::span<const std::byte* const> from, std::byte* to, size_t bytes, DataType dtype) {
  switch (dtype) {
    case DataType::Float64:
      return fold<double>(from, to, bytes, std::plus<>());
    case DataType::Float32:
      return fold<float>(from, to, bytes, std::plus<>());
    case DataType::BFloat16:
      return sum_bfloat(from, to, bytes);
  }
}

void maximum(std::span<const std::byte* const> from, std::byte* to, size_t bytes, DataType dtype) {
  switch (dtype) {
    case DataType::Float64:
      return fold<double>(from, to, bytes, greater<double>);
    case DataType::Float32:
      return fold<float>(from, to, bytes, greater<float>);
    case DataType::BFloat16:
      return fold<BFloat>(from, to, bytes,
                          [](BFloat a, BFloat b) { return to_bfloat(greater(to_float(a), to_float(b))); });
  }
}

void combine(std::span<const std::byte* const> from, std::byte* to, size_t bytes, DataType dtype, Combine how) {
  how == Combine::Sum ? sum(from, to, bytes, dtype) : maximum(from, to, bytes, dtype);
}

void add(const std::byte* from, std::byte* to, size_t bytes, DataType dtype) {
  const std::byte* both[] = {to, from};
  sum(both, to, bytes, dtype);
}

}  // namespace piper
