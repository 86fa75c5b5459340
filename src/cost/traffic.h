// What a communication puts on the links, and how long it takes alone.
//
// A message between devices that meet at level 0 uses their ports of level 0. One between devices that meet further out
// uses the ports of levels 1 to there: a device reaches the network without the links inside its node. The formulas of
// all algorithms are in docs/cluster.md.
#pragma once

#include <span>
#include <vector>

#include "cost/cluster.h"
#include "cost/collective.h"

namespace piper {

/// Alone it takes latency + the longest of `seconds`; each is how long the ports of that level, of every member, are
/// busy with it (in both directions for a collective; out at the sender and in at the receiver for a transfer).
struct Traffic {
  double latency = 0;
  std::array<double, max_link_levels> seconds{};
  std::array<double, max_link_levels> bytes{};  // through each of these ports, in one direction
  friend bool operator==(const Traffic&, const Traffic&) = default;
};
double alone_seconds(const Traffic& traffic);

/// Between two devices that meet at this level.
Traffic transfer_traffic(const Cluster& cluster, int level, int64_t bytes);

/// How the members of a collective lie at one level. Where they lie unevenly the worst unit counts.
struct LevelSpread {
  int units = 1;        // of the level below that have members (below the innermost: the members)
  int largest = 1;      // most members that one unit of this level joins
  int children = 1;     // most of `units` that one unit of this level joins
  int ports = 1;        // fewest ports of this level that the members of one of `units` have
  double crossing = 0;  // pairs of members, one behind a port and one outside its unit: the most of any port
  friend bool operator==(const LevelSpread&, const LevelSpread&) = default;
};

/// How the members of a collective lie over the levels; computed once per group, then any size is cheap.
struct Spread {
  int members = 1;
  int top = 0;  // the level at which all members meet
  std::array<LevelSpread, max_link_levels> levels;
  friend bool operator==(const Spread&, const Spread&) = default;
};
/// All members meet at some level (check_devices), and no device occurs twice.
Spread spread_of(const Cluster& cluster, std::span<const int> members);

enum class Algorithm { Direct, Ring, Tree, Hierarchical, InSwitch };
std::string_view name(Algorithm algorithm);
/// Those that exist for this collective and these members, at least one.
std::vector<Algorithm> algorithms(const Cluster& cluster, CollectiveKind kind, const Spread& spread);
/// The fastest of them for this size.
Algorithm best_algorithm(const Cluster& cluster, CollectiveKind kind, const Spread& spread, int64_t bytes);

/// By the best algorithm. `bytes`: the whole array of all_reduce, reduce_scatter, all_gather and reduce_pieces; the
/// buffer of one member for all_to_all and shift.
Traffic collective_traffic(const Cluster& cluster, CollectiveKind kind, const Spread& spread, int64_t bytes);
Traffic collective_traffic(const Cluster& cluster, CollectiveKind kind, const Spread& spread, int64_t bytes,
                           Algorithm algorithm);

}  // namespace piper
