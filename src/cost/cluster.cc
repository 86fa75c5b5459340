#include "cost/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>

namespace piper {
namespace {

/// Devices of a unit of the level below.
int devices_below(const Cluster& cluster, int level) {
  return level == 0 ? 1 : cluster.levels[static_cast<size_t>(level) - 1].joins;
}

}  // namespace

const DeviceKind& kind_of(const Cluster& cluster, int device) {
  int64_t end = 0;
  for (const NodeRun& run : cluster.nodes) {
    end += int64_t{run.count} * run.devices;
    if (device < end || run.count == 0) return cluster.kinds[static_cast<size_t>(run.kind)];
  }
  return cluster.kinds[cluster.nodes.empty() ? 0 : static_cast<size_t>(cluster.nodes.back().kind)];
}

std::optional<SharedProcessor> shared_processor(const Cluster& cluster, int device) {
  int64_t first = 0;
  for (const NodeRun& run : cluster.nodes) {
    const int64_t end = first + int64_t{run.count} * run.devices;
    if (device < end || run.count == 0) {
      const int sharing = run.processors > 0 ? run.devices / run.processors : 1;
      if (sharing == 1) return {};
      return SharedProcessor{static_cast<int>(first + (device - first) / sharing * sharing), run.together};
    }
    first = end;
  }
  return {};
}

int device_limit(const Cluster& cluster) {
  if (cluster.nodes.empty() || cluster.nodes.back().count == 0) return INT_MAX;
  int64_t devices = 0;
  for (const NodeRun& run : cluster.nodes) devices += int64_t{run.count} * run.devices;
  return static_cast<int>(std::min<int64_t>(devices, INT_MAX));
}

int common_level(const Cluster& cluster, int a, int b) {
  for (size_t l = 0; l < cluster.levels.size(); ++l) {
    const int joins = cluster.levels[l].joins;
    if (joins == 0 || a / joins == b / joins) return static_cast<int>(l);
  }
  return -1;
}

int port_of(const Cluster& cluster, int level, int device) {
  return device / std::max(1, devices_below(cluster, level) / cluster.levels[static_cast<size_t>(level)].ports);
}

double port_bandwidth(const Cluster& cluster, int level) {
  const LinkLevel& link = cluster.levels[static_cast<size_t>(level)];
  return link.bandwidth * std::max(1, link.ports / devices_below(cluster, level));
}

double efficiency_at(const LinkLevel& level, double bytes) {
  const auto& points = level.efficiency;
  if (points.empty()) return 1;
  const auto after = std::find_if(points.begin(), points.end(), [&](const auto& p) { return p.bytes >= bytes; });
  if (after == points.begin()) return points.front().share;
  if (after == points.end()) return points.back().share;
  const EfficiencyPoint& before = *(after - 1);
  const double along = std::log2(bytes / before.bytes) / std::log2(after->bytes / before.bytes);
  return before.share + along * (after->share - before.share);
}

Checked check_devices(const Cluster& cluster, int devices, const SourceRange& where) {
  if (const int limit = device_limit(cluster); devices > limit)
    return error(ErrorCode::E205, where,
                 fmt::format("device {} does not exist: cluster \"{}\" has {} device{}", limit, cluster.name, limit,
                             limit == 1 ? "" : "s"))
        .help("use fewer devices, or give the cluster more [[nodes]]");
  const LinkLevel& outermost = cluster.levels.back();
  if (devices > 1 && common_level(cluster, 0, devices - 1) < 0)
    return error(ErrorCode::E111, outermost.where,
                 fmt::format("no link joins devices 0 and {}: \"{}\" joins {}", outermost.joins, outermost.name,
                             outermost.joins))
        .note(where, fmt::format("{} devices are declared here", devices))
        .help("add [[links]] without joins: they join all devices");
  return Ok{};
}

Checked check_dtype(const Cluster& cluster, int devices, DType dtype) {
  const auto check = [&](const DeviceKind& kind) -> Checked {
    if (kind.peak[static_cast<size_t>(dtype)] > 0) return Ok{};
    return error(ErrorCode::E111, kind.where,
                 fmt::format("device \"{}\" does not say how fast it computes in {}, as the model does", kind.name,
                             name(dtype)))
        .help(fmt::format("add {} = \"100TFLOPS\", or what it is, to [device.{}.peak]", name(dtype), kind.name));
  };
  if (cluster.nodes.empty()) return check(cluster.kinds[0]);
  int64_t first = 0;
  for (const NodeRun& run : cluster.nodes) {
    if (first < devices) PIPER_CHECK(check(cluster.kinds[static_cast<size_t>(run.kind)]));
    first += int64_t{run.count} * run.devices;
  }
  return Ok{};
}

}  // namespace piper
