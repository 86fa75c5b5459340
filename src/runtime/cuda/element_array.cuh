// ElementArray of any type in the memory of a GPU, several at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/bfloat.h"
#include "model/size.h"

namespace piper::cuda {

/// Elements that a thread takes at once: 16 bytes of float32.
constexpr int together = 4;

/// An array; `aligned` if groups of elements can be read and written at once. Parts of a state may lie anywhere.
struct ElementArray {
  DType dtype = DType::Float32;
  std::byte* data = nullptr;  // none: not there
  bool aligned = false;
};

template <class Element>
struct alignas(sizeof(Element) * together) Group {
  Element at[together];
};

template <class T, class Element>
__device__ T widen(Element x) {
  return static_cast<T>(x);
}
template <>
inline __device__ float widen<float, BFloat>(BFloat x) {
  return to_float(x);
}
template <>
inline __device__ double widen<double, BFloat>(BFloat x) {
  return to_float(x);
}
template <class Element, class T>
__device__ Element narrow(T x) {
  if constexpr (std::is_same_v<Element, BFloat>)
    return to_bfloat(static_cast<float>(x));
  else
    return static_cast<Element>(x);
}

/// A group that nobody needs again soon.
template <class T, class Element>
__device__ void load_group(const Element* from, T (&to)[together]) {
  static_assert(sizeof(Group<Element>) == 16 || sizeof(Group<Element>) == 8);
  using Word = std::conditional_t<sizeof(Group<Element>) == 16, int4, int2>;
  const Word word = __ldcs(reinterpret_cast<const Word*>(from));
  Group<Element> group;
  memcpy(&group, &word, sizeof(group));
#pragma unroll
  for (int i = 0; i < together; ++i) to[i] = widen<T>(group.at[i]);
}
template <class T, class Element>
__device__ void store_group(const T (&from)[together], Element* to) {
  using Word = std::conditional_t<sizeof(Group<Element>) == 16, int4, int2>;
  Group<Element> group;
#pragma unroll
  for (int i = 0; i < together; ++i) group.at[i] = narrow<Element>(from[i]);
  Word word;
  memcpy(&word, &group, sizeof(group));
  __stcs(reinterpret_cast<Word*>(to), word);
}

template <class T, class Element>
__device__ void load_as(const ElementArray& from, int64_t first, int n, T (&to)[together]) {
  const std::byte* data = from.data + first * static_cast<int64_t>(sizeof(Element));
  if (from.aligned && n == together) {
    const Group<Element> group = *reinterpret_cast<const Group<Element>*>(data);
#pragma unroll
    for (int i = 0; i < together; ++i) to[i] = widen<T>(group.at[i]);
  } else {
#pragma unroll  // so that all stays in registers
    for (int i = 0; i < together; ++i) {
      if (i >= n) break;
      Element x;
      memcpy(&x, data + i * sizeof(Element), sizeof(Element));
      to[i] = widen<T>(x);
    }
  }
}
template <class T, class Element>
__device__ void store_as(const T (&from)[together], const ElementArray& to, int64_t first, int n) {
  std::byte* data = to.data + first * static_cast<int64_t>(sizeof(Element));
  if (to.aligned && n == together) {
    Group<Element> group;
#pragma unroll
    for (int i = 0; i < together; ++i) group.at[i] = narrow<Element>(from[i]);
    *reinterpret_cast<Group<Element>*>(data) = group;
  } else {
#pragma unroll
    for (int i = 0; i < together; ++i) {
      if (i >= n) break;
      const Element x = narrow<Element>(from[i]);
      memcpy(data + i * sizeof(Element), &x, sizeof(Element));
    }
  }
}

/// Elements [first, first + n) of the array; the type is the same for all threads, so nobody waits for the choice.
template <class T>
__device__ void load(const ElementArray& from, int64_t first, int n, T (&to)[together]) {
  if (from.dtype == DType::Float32)
    load_as<T, float>(from, first, n, to);
  else if (from.dtype == DType::BFloat16)
    load_as<T, BFloat>(from, first, n, to);
  else
    load_as<T, double>(from, first, n, to);
}
template <class T>
__device__ void store(const T (&from)[together], const ElementArray& to, int64_t first, int n) {
  if (to.dtype == DType::Float32)
    store_as<T, float>(from, to, first, n);
  else if (to.dtype == DType::BFloat16)
    store_as<T, BFloat>(from, to, first, n);
  else
    store_as<T, double>(from, to, first, n);
}

inline ElementArray element_array(DType dtype, const std::byte* data) {
  const auto unit = static_cast<uintptr_t>(together * bytes_of(dtype));
  return {dtype, const_cast<std::byte*>(data), reinterpret_cast<uintptr_t>(data) % unit == 0};
}

}  // namespace piper::cuda
