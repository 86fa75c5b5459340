// Where the axes of a candidate's mesh lie on the cluster's links.
#pragma once

#include <span>

#include "cost/traffic.h"
#include "search/space.h"

namespace piper {

/// Ways in which groups of devices lie over the levels of links, each once.
using Spreads = std::vector<Spread>;

struct Layout {
  ByAxis<Spreads> along;                   // devices along an axis that communicates in forward and backward
  ByAxis<int> number;                      // equal numbers: equal spreads, in all layouts of a search
  Spreads dense, experts;                  // that hold equal copies of parameters: of all, of experts
  int level = 0;                           // the innermost over which neighbouring pipeline ranks meet
  std::vector<std::vector<size_t>> kinds;  // of devices, by pipeline rank
};
Layout layout_of(const Cluster& cluster, const Candidate& candidate);

/// Seconds of a collective alone, on the groups that are fastest. Nothing: groups of one device.
double least_seconds(const Cluster& cluster, const Spreads& spreads, CollectiveKind kind, int64_t bytes);

}  // namespace piper
