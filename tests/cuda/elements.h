// Elements of float64, float32 and bfloat16 as numbers, and as memory of a GPU.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "base/bfloat.h"
#include "cuda/gpu_memory.h"

namespace piper {

template <class T>
T narrowed(double value) {
  if constexpr (std::is_same_v<T, BFloat>)
    return to_bfloat(static_cast<float>(value));
  else
    return static_cast<T>(value);
}
template <class T>
double wide(T value) {
  if constexpr (std::is_same_v<T, BFloat>)
    return to_float(value);
  else
    return static_cast<double>(value);
}

template <class T>
std::vector<std::byte> bytes(const std::vector<T>& from) {
  std::vector<std::byte> out(from.size() * sizeof(T));
  std::memcpy(out.data(), from.data(), out.size());
  return out;
}
template <class T>
std::vector<T> read(const GpuMemory& from) {
  const std::vector<std::byte> raw = from.read();
  std::vector<T> out(raw.size() / sizeof(T));
  std::memcpy(out.data(), raw.data(), raw.size());
  return out;
}

}  // namespace piper
