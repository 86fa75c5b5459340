#include <algorithm>

#include "runtime/optimizer/element_blocks.h"
#include "runtime/optimizer/optimizer.h"

namespace piper {
namespace {

/// Pairs of halves, down to a block: the error grows with the logarithm of the count.
template <size_t n>
double sum_pairwise(const double* elements) {
  if constexpr (n == 1)
    return elements[0];
  else
    return sum_pairwise<n / 2>(elements) + sum_pairwise<n / 2>(elements + n / 2);
}

double sum_block(DType dtype, const std::byte* elements, int64_t begin, int64_t end) {
  constexpr size_t lanes = 8;
  Block<double> x{};
  load(dtype, elements, begin, end, x);
  double total[lanes] = {};
  for (size_t i = 0; i < block_size; i += lanes)
    for (size_t lane = 0; lane < lanes; ++lane) total[lane] += x[i + lane] * x[i + lane];
  return sum_pairwise<lanes>(total);
}

double sum_range(DType dtype, const std::byte* elements, int64_t begin, int64_t end) {
  const int64_t blocks = (end - begin + block_size - 1) / block_size;
  if (blocks <= 1) return sum_block(dtype, elements, begin, end);
  const int64_t middle = begin + (blocks + 1) / 2 * block_size;
  return sum_range(dtype, elements, begin, middle) + sum_range(dtype, elements, middle, end);
}

}  // namespace

double sum_of_squares(DType dtype, const std::byte* elements, int64_t count) {
  return sum_range(dtype, elements, 0, count);
}

}  // namespace piper
