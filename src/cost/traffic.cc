#include "cost/traffic.h"

#include <algorithm>
#include <cmath>

#include "base/invariant.h"

namespace piper {
namespace {

/// Seconds that a port of the level needs for so many bytes, in messages of that size.
double busy(const Cluster& cluster, int level, double bytes, double message) {
  return bytes / (port_bandwidth(cluster, level) * efficiency_at(cluster.levels[static_cast<size_t>(level)], message));
}

/// Rounds: none are needed where all experts get equally many rows.
bool sends_nothing(CollectiveKind kind) {
  return kind == CollectiveKind::LocalSlice || kind == CollectiveKind::Rounds;
}

/// How often the data goes round: all_reduce is a reduce_scatter and an all_gather.
int rounds(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce ? 2 : 1;
}

/// A collective whose members and array are known; one function per algorithm.
class Model {
 public:
  Model(const Cluster& cluster, CollectiveKind kind, const Spread& spread, int64_t bytes)
      : cluster_(cluster),
        spread_(spread),
        rounds_(rounds(kind)),
        members_(spread.members),
        bytes_(static_cast<double>(bytes)) {}

  /// Rings through all members, as many as a unit has ports: each crosses the border of every unit once.
  Traffic ring() const {
    Traffic out;
    const double passes = rounds_ * (members_ - 1) / members_;
    for (int l = 0; l <= spread_.top; ++l) {
      const double edges = edges_beyond(l) - (l < spread_.top ? edges_beyond(l + 1) : 0);
      out.latency += passes * edges * latency(l);
      if (uses(l)) carry(out, l, passes * (l == 0 ? inside() : 1 / ports(l)) * bytes_, bytes_ / members_);
    }
    return out;
  }

  /// Two binary trees, each for half of the data, in which every member is an inner node once: all_reduce only.
  Traffic tree() const {
    Traffic out;
    for (int l = 0; l <= spread_.top; ++l) {
      if (!uses(l)) continue;
      out.latency += 2 * std::log2(children(l)) * latency(l);
      carry(out, l, tree_passes(l) * bytes_ / ports(l), bytes_ / ports(l));
    }
    return out;
  }

  /// The switches add up: every member sends everything once and receives it once; a gather is only the second half.
  Traffic in_switch() const {
    Traffic out;
    const double passes = rounds_ == 2 ? 1 : (members_ - 1) / members_;
    for (int l = 0; l <= spread_.top; ++l) {
      if (!uses(l)) continue;
      out.latency += rounds_ * latency(l);
      carry(out, l, passes * bytes_ / ports(l), bytes_ / ports(l), reduce_share(l));
    }
    return out;
  }

  enum class Across { Ring, Tree };
  /// Level by level: reduce-scatter inside the unit, then between units on what is left to each device, and back. The
  /// levels work at the same time, on different parts of the array.
  Traffic hierarchical(Across across) const {
    Traffic out;
    double part = 1;  // of the array, that a device brings to the level
    for (int l = 0; l <= spread_.top; ++l) {
      const double c = children(l);
      if (!uses(l) || c < 2) continue;
      const bool switched = level(l).reduces && rounds_ == 2;
      const bool tree = !switched && l > 0 && across == Across::Tree;
      const double passes = switched ? 1 : tree ? tree_passes(l) : rounds_ * (c - 1) / c;
      out.latency += rounds_ * (switched ? 1 : tree ? std::log2(c) : c - 1) * latency(l);
      carry(out, l, passes * bytes_ / ports(l), part * bytes_ / (tree || switched ? 1 : c),
            switched ? reduce_share(l) : 1);
      double below = 1;  // what crosses here came through the ports of the levels between
      for (int inner = l - 1; inner >= 1; --inner) {
        below *= children(inner);
        carry(out, inner, passes * bytes_ / below / ports(inner), part * bytes_ / c);
      }
      part /= c;
    }
    return out;
  }

  /// all_to_all: a message from everyone to everyone.
  Traffic direct() const {
    Traffic out;
    const double message = bytes_ / members_;
    double nearer = 1;  // members met so far, with oneself
    for (int l = 0; l <= spread_.top; ++l) {
      const double peers = spread_at(l).largest - nearer;
      nearer = spread_at(l).largest;
      out.latency += peers * level(l).gap.value_or(latency(l));
      if (l == spread_.top) out.latency += latency(l) - level(l).gap.value_or(latency(l));
      carry(out, l, (l == 0 ? peers : spread_at(l).crossing) * message, message);
    }
    return out;
  }

  /// shift, to the next member: from every unit one message leaves, through one of its ports.
  Traffic shift() const {
    Traffic out;
    for (int l = 0; l <= spread_.top; ++l) {
      if (!uses(l)) continue;
      out.latency = std::max(out.latency, latency(l));
      carry(out, l, bytes_, bytes_);
      if (l > 0) out.bytes[static_cast<size_t>(l)] = bytes_ / ports(l);
    }
    return out;
  }

  /// reduce_pieces, as between two groups of half the members each: each device and its counterpart exchange what they
  /// own.
  Traffic exchange_pieces() const {
    Traffic out;
    out.latency = latency(spread_.top);
    const double piece = 2 * bytes_ / members_;
    if (spread_.top == 0) carry(out, 0, piece, piece);
    for (int l = 1; l <= spread_.top; ++l) carry(out, l, piece * spread_at(l - 1).largest / ports(l), piece);
    return out;
  }

 private:
  const LinkLevel& level(int l) const { return cluster_.levels[static_cast<size_t>(l)]; }
  const LevelSpread& spread_at(int l) const { return spread_.levels[static_cast<size_t>(l)]; }
  double latency(int l) const { return level(l).latency; }
  double reduce_share(int l) const { return level(l).reduce_share; }
  double ports(int l) const { return spread_at(l).ports; }
  double children(int l) const { return spread_at(l).children; }
  /// Whether any message goes through the ports of the level: those inside a node idle if members are alone in theirs.
  bool uses(int l) const { return l > 0 || spread_at(0).largest > 1; }
  /// How often the array goes through a unit's border in two trees: a leaf and a root of two share one edge.
  double tree_passes(int l) const { return rounds_ * (l > 0 && children(l) == 2 ? 0.5 : 1); }
  /// The share of the rings that a member's port inside the node carries: with a port for everyone, each member is
  /// where one of the rings leaves.
  double inside() const {
    const double k = spread_at(0).largest;
    return spread_.top > 0 && ports(1) >= k ? (k - 1) / k : 1;
  }
  /// Edges of a ring through all members that leave the units of the level below.
  double edges_beyond(int l) const { return spread_at(l).units > 1 ? spread_at(l).units : 0; }
  /// `share` of the bandwidth is there for it.
  void carry(Traffic& out, int l, double bytes, double message, double share = 1) const {
    out.seconds[static_cast<size_t>(l)] += busy(cluster_, l, bytes, message) / share;
    out.bytes[static_cast<size_t>(l)] += bytes;
  }

  const Cluster& cluster_;
  const Spread& spread_;
  int rounds_;
  double members_, bytes_;
};

bool reduces_everywhere(const Cluster& cluster, const Spread& spread) {
  for (int l = spread.levels[0].largest > 1 ? 0 : 1; l <= spread.top; ++l)
    if (!cluster.levels[static_cast<size_t>(l)].reduces) return false;
  return true;
}

struct Choice {
  Algorithm algorithm;
  Traffic traffic;
};
Choice choose(const Cluster& cluster, CollectiveKind kind, const Spread& spread, int64_t bytes) {
  const std::vector<Algorithm> candidates = algorithms(cluster, kind, spread);
  Choice best{candidates[0], collective_traffic(cluster, kind, spread, bytes, candidates[0])};
  for (size_t i = 1; i < candidates.size(); ++i) {
    const Traffic other = collective_traffic(cluster, kind, spread, bytes, candidates[i]);
    if (alone_seconds(other) < alone_seconds(best.traffic)) best = {candidates[i], other};
  }
  return best;
}

}  // namespace

double alone_seconds(const Traffic& traffic) {
  return traffic.latency + *std::max_element(traffic.seconds.begin(), traffic.seconds.end());
}

Traffic transfer_traffic(const Cluster& cluster, int level, int64_t bytes) {
  Traffic out;
  out.latency = cluster.levels[static_cast<size_t>(level)].latency;
  const auto size = static_cast<double>(bytes);
  for (int l = std::min(level, 1); l <= level; ++l) {
    out.seconds[static_cast<size_t>(l)] = busy(cluster, l, size, size);
    out.bytes[static_cast<size_t>(l)] = size;
  }
  return out;
}

std::string_view name(Algorithm algorithm) {
  constexpr std::string_view names[] = {"direct", "ring", "tree", "hierarchical", "in-switch"};
  return names[static_cast<int>(algorithm)];
}

std::vector<Algorithm> algorithms(const Cluster& cluster, CollectiveKind kind, const Spread& spread) {
  if (kind == CollectiveKind::AllToAll || kind == CollectiveKind::ReducePieces || kind == CollectiveKind::Shift ||
      sends_nothing(kind))
    return {Algorithm::Direct};
  std::vector<Algorithm> out = {Algorithm::Ring};
  if (kind == CollectiveKind::AllReduce) {
    out.push_back(Algorithm::Tree);
    // libraries have it only where the switch inside the node reduces
    if (spread.top > 0 && spread.levels[0].largest > 1 && cluster.levels[0].reduces)
      out.push_back(Algorithm::Hierarchical);
  }
  if (reduces_everywhere(cluster, spread)) out.push_back(Algorithm::InSwitch);
  return out;
}

Algorithm best_algorithm(const Cluster& cluster, CollectiveKind kind, const Spread& spread, int64_t bytes) {
  return choose(cluster, kind, spread, bytes).algorithm;
}

Traffic collective_traffic(const Cluster& cluster, CollectiveKind kind, const Spread& spread, int64_t bytes) {
  return choose(cluster, kind, spread, bytes).traffic;
}

Traffic collective_traffic(const Cluster& cluster, CollectiveKind kind, const Spread& spread, int64_t bytes,
                           Algorithm algorithm) {
  if (spread.members < 2 || sends_nothing(kind)) return {};
  const Model model(cluster, kind, spread, bytes);
  switch (algorithm) {
    case Algorithm::Direct:
      return kind == CollectiveKind::ReducePieces ? model.exchange_pieces()
             : kind == CollectiveKind::Shift      ? model.shift()
                                                  : model.direct();
    case Algorithm::Ring:
      return model.ring();
    case Algorithm::Tree:
      return model.tree();
    case Algorithm::InSwitch:
      return model.in_switch();
    case Algorithm::Hierarchical: {
      const Traffic ring = model.hierarchical(Model::Across::Ring), tree = model.hierarchical(Model::Across::Tree);
      return alone_seconds(ring) <= alone_seconds(tree) ? ring : tree;
    }
  }
  internal_error("an algorithm without a formula");
}

}  // namespace piper
