#include "runtime/optimizer/element_blocks.h"

#include <cstring>

#include "base/bfloat.h"
#include "base/invariant.h"

namespace piper {
namespace {

template <class T, class From>
T convert(From x) {
  if constexpr (std::is_same_v<From, BFloat>)
    return to_float(x);
  else if constexpr (std::is_same_v<T, BFloat>)
    return to_bfloat(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

template <class Element, class T>
void load_as(const std::byte* from, int64_t begin, int64_t end, Block<T>& to) {
  if (begin == end) return;  // of nothing, which may lie nowhere
  const auto n = static_cast<size_t>(end - begin);
  from += begin * static_cast<int64_t>(sizeof(Element));
  if constexpr (std::is_same_v<Element, T>) {
    std::memcpy(to.data(), from, n * sizeof(T));
  } else {
    Block<Element> read;
    std::memcpy(read.data(), from, n * sizeof(Element));
    for (size_t i = 0; i < n; ++i) to[i] = convert<T>(read[i]);
  }
}

template <class Element, class T>
void store_as(const Block<T>& from, std::byte* to, int64_t begin, int64_t end) {
  if (begin == end) return;
  const auto n = static_cast<size_t>(end - begin);
  to += begin * static_cast<int64_t>(sizeof(Element));
  if constexpr (std::is_same_v<Element, T>) {
    std::memcpy(to, from.data(), n * sizeof(T));
  } else {
    Block<Element> written;
    for (size_t i = 0; i < n; ++i) written[i] = convert<Element>(from[i]);
    std::memcpy(to, written.data(), n * sizeof(Element));
  }
}

}  // namespace

bool has_kernels(DType dtype) {
  return dtype == DType::Float64 || dtype == DType::Float32 || dtype == DType::BFloat16;
}

template <class T>
void load(DType dtype, const std::byte* from, int64_t begin, int64_t end, Block<T>& to) {
  switch (dtype) {
    case DType::Float64:
      return load_as<double>(from, begin, end, to);
    case DType::Float32:
      return load_as<float>(from, begin, end, to);
    case DType::BFloat16:
      return load_as<BFloat>(from, begin, end, to);
    default:
      internal_error("only types that check_types accepts are updated");
  }
}

template <class T>
void store(DType dtype, const Block<T>& from, std::byte* to, int64_t begin, int64_t end) {
  switch (dtype) {
    case DType::Float64:
      return store_as<double>(from, to, begin, end);
    case DType::Float32:
      return store_as<float>(from, to, begin, end);
    case DType::BFloat16:
      return store_as<BFloat>(from, to, begin, end);
    default:
      internal_error("only types that check_types accepts are updated");
  }
}

template void load(DType, const std::byte*, int64_t, int64_t, Block<float>&);
template void load(DType, const std::byte*, int64_t, int64_t, Block<double>&);
template void store(DType, const Block<float>&, std::byte*, int64_t, int64_t);
template void store(DType, const Block<double>&, std::byte*, int64_t, int64_t);

}  // namespace piper
