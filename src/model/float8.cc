#include "model/float8.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/saturate.h"

namespace piper {
namespace {

/// Elements, and as many bytes in float8.
int64_t operands(const MatrixProduct& product) {
  const int64_t left = saturating_multiply(product.rows, product.depth),
                right = saturating_multiply(product.depth, product.columns);
  return saturating_multiply(product.count, saturating_add(left, right));
}

}  // namespace

Checked check_fits_float8(const MatrixProduct& product, const std::string& chunk, Pass pass, const SourceRange& where) {
  for (const int64_t size : {product.depth, product.columns}) {
    if (size % float8_multiple == 0) continue;
    return error(ErrorCode::E320, where,
                 fmt::format("precision: {} {} multiplies [{}, {}] by [{}, {}]: {} is no multiple of {}", chunk,
                             name(pass), product.rows, product.depth, product.depth, product.columns, size,
                             float8_multiple))
        .help(
            fmt::format("GPUs multiply float8 in blocks of {}: choose widths, and tokens of a microbatch on a device, "
                        "that are multiples of it",
                        float8_multiple))
        .help("or leave the chunk out of the filter");
  }
  return Ok{};
}

int64_t float8_speed(DType values) {
  return values == DType::BFloat16 ? 2 : 1;
}

DeviceWork with_linear_products(DeviceWork work, LinearProducts how, DType values) {
  if (!work.operators) return work;
  for (MatrixProduct& product : work.operators->products) {
    if (product.kind != ProductKind::Linear) continue;
    product.kind = how == LinearProducts::Float8 ? ProductKind::Float8 : ProductKind::Other;
    if (how == LinearProducts::AsStored) continue;
    const int64_t bytes = saturating_multiply(operands(product), bytes_of(values) + 1);
    work.bytes = saturating_add(work.bytes, bytes);
    work.operators->streamed = saturating_add(work.operators->streamed, bytes);
    work.operators->kernels += 2;
  }
  return work;
}

int64_t float8_temporaries(const DeviceOperators& operators) {
  int64_t most = 0;
  for (const MatrixProduct& product : operators.products)
    if (product.kind == ProductKind::Linear) most = std::max(most, operands(product));
  return most;
}

}  // namespace piper
