// spread_of: how the members of a collective lie over the units and ports of each level.
#include <algorithm>

#include "base/invariant.h"
#include "cost/traffic.h"

namespace piper {
namespace {

/// Members in a row that lie in one unit of the level below.
struct Run {
  int members = 0;
  int ports = 0;
  int most_behind_port = 0;
};

Run run_from(const Cluster& cluster, int level, int below, std::span<const int> members) {
  Run run;
  int port = -1, behind = 0;
  for (const int device : members) {
    if (device / below != members[0] / below) break;
    if (const int p = port_of(cluster, level, device); p != port) {
      port = p;
      behind = 0;
      ++run.ports;
    }
    run.most_behind_port = std::max(run.most_behind_port, ++behind);
    ++run.members;
  }
  return run;
}

LevelSpread at_level(const Cluster& cluster, int level, std::span<const int> members) {
  const int below = level == 0 ? 1 : cluster.levels[static_cast<size_t>(level) - 1].joins;
  const int joins = cluster.levels[static_cast<size_t>(level)].joins;
  const auto all = static_cast<int>(members.size());
  LevelSpread out{0, 0, 0, all, 0};
  int unit = -1, joined = 0, children = 0;
  for (int at = 0; at < all;) {
    const Run run = run_from(cluster, level, below, members.subspan(static_cast<size_t>(at)));
    if (const int u = joins == 0 ? 0 : members[static_cast<size_t>(at)] / joins; u != unit) {
      unit = u;
      joined = children = 0;
    }
    ++out.units;
    out.largest = std::max(out.largest, joined += run.members);
    out.children = std::max(out.children, ++children);
    out.ports = std::min(out.ports, run.ports);
    out.crossing = std::max(out.crossing, double(run.most_behind_port) * (all - run.members));
    at += run.members;
  }
  return out;
}

}  // namespace

Spread spread_of(const Cluster& cluster, std::span<const int> members) {
  std::vector<int> sorted;
  if (!std::is_sorted(members.begin(), members.end())) {
    sorted.assign(members.begin(), members.end());
    std::sort(sorted.begin(), sorted.end());
    members = sorted;
  }
  Spread out;
  out.members = static_cast<int>(members.size());
  if (out.members < 2) return out;
  out.top = common_level(cluster, members.front(), members.back());
  invariant(out.top >= 0, "links join the members of a collective");
  for (int l = 0; l <= out.top; ++l) out.levels[static_cast<size_t>(l)] = at_level(cluster, l, members);
  return out;
}

}  // namespace piper
