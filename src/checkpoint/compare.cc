#include "checkpoint/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/bfloat.h"
#include "base/invariant.h"

namespace piper {
namespace {

/// IEEE half precision: 1 sign, 5 exponent, 10 fraction bits.
double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 0    ? std::ldexp(fraction, -24)
                      : exponent == 31 ? (fraction ? NAN : INFINITY)
                                       : std::ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 ? -size : size;
}

template <class T>
T element_at(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

bool is_float(StoredDType dtype) {
  return dtype == StoredDType::F64 || dtype == StoredDType::F32 || dtype == StoredDType::F16 ||
         dtype == StoredDType::BF16;
}

double float_value(StoredDType dtype, const std::byte* bytes) {
  switch (dtype) {
    case StoredDType::F64:
      return element_at<double>(bytes);
    case StoredDType::F32:
      return element_at<float>(bytes);
    case StoredDType::BF16:
      return to_float(BFloat{element_at<uint16_t>(bytes)});
    default:
      invariant(dtype == StoredDType::F16, "only floats have differences");
      return half_value(element_at<uint16_t>(bytes));
  }
}

/// Takes the larger one; what is not a number is larger than any.
void keep_largest(std::optional<double>& largest, double difference) {
  if (!largest || std::isnan(difference) || difference > *largest) largest = difference;
}

void compare_piece(StoredDType dtype, std::span<const std::byte> first, std::span<const std::byte> second,
                   TensorDifference& out) {
  if (std::memcmp(first.data(), second.data(), first.size()) == 0) return;
  const auto width = static_cast<size_t>(bytes_of(dtype));
  for (size_t at = 0; at < first.size(); at += width) {
    if (std::memcmp(&first[at], &second[at], width) == 0) continue;
    ++out.elements;
    if (is_float(dtype) && !(out.largest && std::isnan(*out.largest)))
      keep_largest(out.largest, std::abs(float_value(dtype, &first[at]) - float_value(dtype, &second[at])));
  }
}

Result<TensorDifference> compare_values(const FolderReader& first, const FolderReader& second,
                                        const StoredTensor& tensor) {
  TensorDifference out{tensor.name, 0, {}};
  std::vector<std::byte> one(static_cast<size_t>(std::min(bytes_of(tensor), block_bytes))), other(one.size());
  for (int64_t at = 0; at < bytes_of(tensor);) {
    const auto size = static_cast<size_t>(std::min(bytes_of(tensor) - at, block_bytes));
    PIPER_CHECK(first.read(tensor.name, at, std::span(one).first(size)));
    PIPER_CHECK(second.read(tensor.name, at, std::span(other).first(size)));
    compare_piece(tensor.dtype, std::span(one).first(size), std::span(other).first(size), out);
    at += static_cast<int64_t>(size);
  }
  return out;
}

}  // namespace

Result<FolderDifference> diff(const FolderReader& first, const FolderReader& second) {
  FolderDifference out;
  for (const auto& [name, place] : first.layout().places) {
    const TensorPlace* other = second.layout().find(name);
    if (!other) {
      out.only_first.push_back(name);
    } else if (!(place.entry.tensor == other->entry.tensor)) {
      out.types.push_back({place.entry.tensor, other->entry.tensor});
    } else {
      PIPER_TRY(TensorDifference difference, compare_values(first, second, place.entry.tensor));
      if (difference.elements > 0)
        out.values.push_back(std::move(difference));
      else
        ++out.equal;
    }
  }
  for (const auto& [name, place] : second.layout().places)
    if (!first.layout().find(name)) out.only_second.push_back(name);
  return out;
}

}  // namespace piper
