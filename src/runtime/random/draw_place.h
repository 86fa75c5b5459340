// Where random numbers lie in the batch of the whole step: whoever draws some of them gets the same, wherever, whenever
// and beside whatever else it draws them.
//
// A number follows from a key (seed, step, operator), from the number of its sample, and from its index among those of
// the sample. Whoever fills a part of a tensor says for each dimension how the index inside the part moves these two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/size.h"
#include "runtime/random/distribution.h"

namespace piper {

/// Bits of the mantissa; of whole numbers as many as a word has.
constexpr int digits_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return 53;
    case DType::Float32:
      return 24;
    case DType::Float16:
      return 11;
    case DType::BFloat16:
      return 8;
    default:
      return 32;
  }
}

/// A dimension of what is filled.
struct DrawDim {
  int64_t size = 1;
  int64_t memory = 1;   // elements from one index to the next
  int64_t element = 0;  // and how far that is among the numbers of a sample
  int64_t sample = 0;   // or among samples
  int64_t slice = 0;    // or among slices that are given
};

struct DrawPlace {
  int64_t start = 0;  // among the numbers of a sample
  std::vector<DrawDim> dims;
  std::span<const int64_t> samples;  // by slice: its first
};

/// Dimensions that are one in every respect are joined; of size 1 there are none. The last is a run: numbers of one
/// sample that follow each other.
std::vector<DrawDim> joined(const std::vector<DrawDim>& dims);

}  // namespace piper
