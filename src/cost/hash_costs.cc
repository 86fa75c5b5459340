#include "cost/hash_costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.h"

namespace piper {

uint64_t hash_costs(const Cluster& cluster, const CostTable* table) {
  StableHash hash;
  for (const DeviceKind& kind : cluster.kinds) {
    hash.add(fmt::format("device {} {} {} {} {}", fmt::join(kind.peak, " "), kind.compute_efficiency,
                         kind.memory_bandwidth, kind.memory_efficiency, kind.launch));
    if (!kind.operators) continue;
    hash.add(fmt::format("operators {} {} {}", kind.operators->issue, kind.operators->sharpness,
                         kind.operators->multiprocessors));
    for (const Tile& tile : kind.operators->tiles)
      hash.add(fmt::format("tile {} {} {}", tile.rows, tile.columns, tile.speed));
  }
  for (const NodeRun& run : cluster.nodes) hash.add(fmt::format("nodes {} {} {}", run.count, run.devices, run.kind));
  for (const LinkLevel& level : cluster.levels) {
    hash.add(fmt::format("link {} {} {} {} {} {} {}", level.joins, level.ports, level.bandwidth, level.latency,
                         level.gap.value_or(level.latency), level.reduces, level.reduce_share));
    for (const EfficiencyPoint& point : level.efficiency) hash.add(fmt::format("{} {}", point.bytes, point.share));
  }
  if (table) hash.add(print(*table));
  return hash.value();
}

}  // namespace piper
