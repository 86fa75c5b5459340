// compute_seconds: how long a computation takes on a kind of device.
#include <algorithm>
#include <cmath>

#include "cost/cluster.h"
#include "model/float8.h"

namespace piper {
namespace {

double reached_bandwidth(const DeviceKind& kind) {
  return kind.memory_bandwidth * kind.memory_efficiency;
}
/// Operations per second; 0: not known.
double reached_peak(const DeviceKind& kind, DType dtype) {
  return kind.peak[static_cast<size_t>(dtype)] * kind.compute_efficiency;
}

/// Seconds of all multiprocessors for the product in tiles of this size. The last wave takes as long as a full one.
double tiled_seconds(const MatrixProduct& product, const Tile& tile, int multiprocessors, double peak) {
  const auto pieces = [](int64_t whole, int part) { return std::ceil(static_cast<double>(whole) / part); };
  const double tiles =
      pieces(product.rows, tile.rows) * pieces(product.columns, tile.columns) * static_cast<double>(product.count);
  const double waves = std::ceil(tiles / multiprocessors);
  return waves * multiprocessors * 2 * tile.rows * tile.columns * static_cast<double>(product.depth) /
         (peak * tile.speed);
}

/// Of a product, in multiples of that of others.
double speed_of(const MatrixProduct& product, DType dtype) {
  return product.kind == ProductKind::Float8 ? static_cast<double>(float8_speed(dtype)) : 1;
}

/// The longer of computing, in the best tiles, and of moving the matrices.
double product_seconds(const DeviceKind& kind, DType dtype, const MatrixProduct& product) {
  const double count = static_cast<double>(product.count), rows = static_cast<double>(product.rows),
               columns = static_cast<double>(product.columns), depth = static_cast<double>(product.depth);
  const double stored = static_cast<double>(bytes_of(dtype)), read = stored / speed_of(product, dtype);
  const double bytes = count * ((rows * depth + depth * columns) * read + rows * columns * stored);
  const double moving = bytes / reached_bandwidth(kind);
  const double peak = reached_peak(kind, dtype) * speed_of(product, dtype);
  if (peak <= 0) return moving;
  double computing = kind.operators->tiles.empty() ? 2 * count * rows * columns * depth / peak : INFINITY;
  for (const Tile& tile : kind.operators->tiles)
    computing = std::min(computing, tiled_seconds(product, tile, kind.operators->multiprocessors, peak));
  return std::max(computing, moving);
}

/// The host launches kernels while the device runs them: what takes longer counts, and a little of the other.
double operator_seconds(const DeviceKind& kind, DType dtype, const DeviceOperators& operators) {
  double device = static_cast<double>(operators.streamed) / reached_bandwidth(kind) +
                  static_cast<double>(operators.kernels) * kind.launch;
  for (const MatrixProduct& product : operators.products) device += product_seconds(kind, dtype, product);
  const double host = static_cast<double>(operators.kernels) * kind.operators->issue;
  const double longer = std::max(host, device), shorter = std::min(host, device);
  if (longer <= 0) return 0;
  const double sharpness = kind.operators->sharpness;
  return longer * std::pow(1 + std::pow(shorter / longer, sharpness), 1 / sharpness);
}

/// Operations in the time of which all are computed: those of faster products count less.
double flops_in_time(const DeviceWork& work, DType dtype) {
  double out = static_cast<double>(work.flops);
  if (work.operators)
    for (const MatrixProduct& product : work.operators->products)
      out -= static_cast<double>(product.flops()) * (1 - 1 / speed_of(product, dtype));
  return std::max(out, 0.0);
}

}  // namespace

double compute_seconds(const DeviceKind& kind, DType dtype, const DeviceWork& work) {
  if (kind.operators && work.operators) return operator_seconds(kind, dtype, *work.operators);
  const double peak = reached_peak(kind, dtype);
  const double computing = peak > 0 ? flops_in_time(work, dtype) / peak : 0;
  const double moving = static_cast<double>(work.bytes) / reached_bandwidth(kind);
  return std::max(computing, moving) + kind.launch;
}

}  // namespace piper
