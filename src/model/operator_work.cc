#include "model/operator_work.h"

#include <algorithm>

#include "base/saturate.h"

namespace piper {

int64_t MatrixProduct::flops() const {
  return saturating_multiply(2 * count, saturating_multiply(rows, saturating_multiply(columns, depth)));
}

DeviceOperators on_device(const OperatorWork& work, int64_t samples, const ShardCounts& shards) {
  int64_t parts = 1;  // among devices that have the same samples
  for (const ShardRule& rule : shard_rules)
    if (rule.axis) parts *= shards[rule.kind];
  DeviceOperators out{{}, work.streamed.at(samples) / parts, work.kernels};
  for (const ProductShape& product : work.products) {
    const auto extent = [&](size_t dim) { return local_extent(product.extents[dim], samples, shards); };
    MatrixProduct& local =
        out.products.emplace_back(MatrixProduct{extent(0), extent(1), extent(2), extent(3), product.kind});
    const bool labelled = std::ranges::any_of(product.extents, [](const Dim& dim) { return !dim.label.empty(); });
    if (!labelled) local.columns = std::max<int64_t>(1, local.columns / parts);
  }
  return out;
}

}  // namespace piper
