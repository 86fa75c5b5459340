// What `shard` can divide among devices, in how many shards, and which of them a device has.
#pragma once

#include <array>
#include <compare>
#include <string>
#include <string_view>

#include "model/size.h"

namespace piper {

/// Expert parallelism divides experts, tensor parallelism heads, inner widths and the vocabulary, sequence parallelism
/// tokens. Graphs, plans and the runtime go through the table; what else a further kind needs: src/ir/README.md.
enum class ShardKind : uint8_t { Expert, Tp, Sequence };

struct ShardRule {
  ShardKind kind;
  std::string_view label;     // of the dimensions that are divided
  std::string_view gathered;  // of those that grow as much: each device has those of all slices
  bool same_samples;          // its devices work on the same samples
};
constexpr std::array shard_rules = {
    ShardRule{ShardKind::Expert, expert_label, capacity_label, false},
    ShardRule{ShardKind::Tp, tp_label, {}, true},
    ShardRule{ShardKind::Sequence, sequence_label, {}, true},
};
constexpr const ShardRule& rule_of(ShardKind kind) {
  return shard_rules[static_cast<size_t>(kind)];
}
constexpr std::string_view label_of(ShardKind kind) {
  return rule_of(kind).label;
}

/// Something for every kind.
template <class T>
struct ByShardKind {
  std::array<T, shard_rules.size()> of = {};
  T& operator[](ShardKind kind) { return of[static_cast<size_t>(kind)]; }
  const T& operator[](ShardKind kind) const { return of[static_cast<size_t>(kind)]; }
  friend auto operator<=>(const ByShardKind&, const ByShardKind&) = default;
};

/// Into how many shards the dimensions of each label are divided.
struct ShardCounts : ByShardKind<int64_t> {
  ShardCounts() { of.fill(1); }
  ShardCounts(ShardKind kind, int64_t count) : ShardCounts() { (*this)[kind] = count; }

  int64_t all() const {
    int64_t product = 1;
    for (const int64_t count : of) product *= count;
    return product;
  }
  friend auto operator<=>(const ShardCounts&, const ShardCounts&) = default;
};

/// Extent of a dimension on one device: divided where its label is, grown as much where it is gathered.
int64_t local_extent(const Dim& dim, int64_t samples, const ShardCounts& shards);

/// `expert=2 tp=4`; nothing if nothing is divided.
std::string print(const ShardCounts& shards);

/// Of one device: how many shards there are, and which of them it has.
struct LocalShard {
  int64_t count = 1, index = 0;
  friend bool operator==(const LocalShard&, const LocalShard&) = default;
};
struct LocalShards : ByShardKind<LocalShard> {
  LocalShards() = default;
  LocalShards(ShardKind kind, LocalShard shard) { (*this)[kind] = shard; }

  ShardCounts counts() const {
    ShardCounts out;
    for (size_t k = 0; k < of.size(); ++k) out.of[k] = of[k].count;
    return out;
  }
};

}  // namespace piper
