#include "search/layout.h"

#include <algorithm>
#include <limits>

namespace piper {
namespace {

struct MeshPlace {
  Axis axis;
  int size, stride;
};

/// Slowest first.
std::vector<MeshPlace> places(const Candidate& candidate) {
  std::vector<MeshPlace> out;
  int stride = candidate.cp * candidate.tp;
  for (auto axis = candidate.order.rbegin(); axis != candidate.order.rend(); ++axis) {
    out.push_back({*axis, size_of(candidate, *axis), stride});
    stride *= size_of(candidate, *axis);
  }
  std::ranges::reverse(out);
  out.push_back({Axis::Cp, candidate.cp, candidate.tp});
  out.push_back({Axis::Tp, candidate.tp, 1});
  return out;
}

/// Devices at all coordinates of the axes that are (or are not) among these, the others 0.
std::vector<int> devices_along(const std::vector<MeshPlace>& mesh, std::span<const Axis> axes, bool among) {
  std::vector<int> out = {0};
  for (const MeshPlace& place : mesh) {
    if ((std::ranges::find(axes, place.axis) != axes.end()) != among) continue;
    std::vector<int> more;
    for (const int device : out)
      for (int i = 0; i < place.size; ++i) more.push_back(device + i * place.stride);
    out = std::move(more);
  }
  return out;
}

Spreads spreads_along(const Cluster& cluster, const std::vector<MeshPlace>& mesh, std::initializer_list<Axis> axes) {
  const std::vector<int> members = devices_along(mesh, axes, true);
  Spreads out;
  if (members.size() < 2) return out;
  std::vector<int> group(members.size());
  for (const int first : devices_along(mesh, axes, false)) {
    for (size_t i = 0; i < members.size(); ++i) group[i] = first + members[i];
    if (const Spread spread = spread_of(cluster, group); std::ranges::find(out, spread) == out.end())
      out.push_back(spread);
  }
  return out;
}

/// Which of the cluster's kinds a device is.
size_t kind_number(const Cluster& cluster, int device) {
  return static_cast<size_t>(&kind_of(cluster, device) - cluster.kinds.data());
}

}  // namespace

Layout layout_of(const Cluster& cluster, const Candidate& candidate) {
  const std::vector<MeshPlace> mesh = places(candidate);
  Layout out;
  for (const Axis axis : communicating_axes) out.along[axis] = spreads_along(cluster, mesh, {axis});
  out.dense = spreads_along(cluster, mesh, {Axis::Dp, Axis::Ep, Axis::Cp});
  out.experts = spreads_along(cluster, mesh, {Axis::Dp});
  const std::vector<int> ranks = devices_along(mesh, std::array{Axis::Pp}, true),
                         others = devices_along(mesh, std::array{Axis::Pp}, false);
  out.level = static_cast<int>(cluster.levels.size()) - 1;
  for (size_t r = 0; r < ranks.size(); ++r) {
    auto& kinds = out.kinds.emplace_back();
    for (const int other : others) {
      if (r + 1 < ranks.size())
        out.level = std::min(out.level, common_level(cluster, ranks[r] + other, ranks[r + 1] + other));
      const size_t kind = kind_number(cluster, ranks[r] + other);
      if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
    }
  }
  return out;
}

double least_seconds(const Cluster& cluster, const Spreads& spreads, CollectiveKind kind, int64_t bytes) {
  if (spreads.empty() || kind == CollectiveKind::LocalSlice) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const Spread& spread : spreads)
    least = std::min(least, alone_seconds(collective_traffic(cluster, kind, spread, bytes)));
  return least;
}

}  // namespace piper
