// What `shard` can divide among devices, in how many shards, and which of them a device has.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "model/size.h"

namespace piper {

/// Axes of the mesh whose devices work on the same samples: the last ones of every group, in this order. Along cp each
/// device has some of the tokens, so that gradients are terms of a sum, as those of other samples are. Along tp all
/// have the same gradients of what they do not divide.
enum class SampleAxis : uint8_t { Cp, Tp };
struct SampleAxisRule {
  SampleAxis axis;
  std::string_view name;
  bool divides_tokens;  // such axes stand before those that do not
};
constexpr std::array sample_axes = {
    SampleAxisRule{SampleAxis::Cp, "cp", true},
    SampleAxisRule{SampleAxis::Tp, "tp", false},
};
constexpr const SampleAxisRule& rule_of(SampleAxis axis) {
  return sample_axes[static_cast<size_t>(axis)];
}
constexpr std::string_view name_of(SampleAxis axis) {
  return rule_of(axis).name;
}

/// Expert parallelism divides experts, tensor parallelism heads, inner widths and the vocabulary, sequence parallelism
/// tokens between those, context parallelism tokens everywhere but in attention, where it may divide heads instead.
/// Graphs, plans and the runtime go through the table; what else a further kind needs: src/ir/README.md.
enum class ShardKind : uint8_t { Expert, Tp, Sequence, Context, Heads };

struct ShardRule {
  ShardKind kind;
  std::string_view name;
  std::string_view label;          // of the dimensions that are divided
  std::string_view gathered;       // of those that grow as much: each device has those of all slices
  std::string_view outside;        // of those that are divided instead where an all-to-all comes from and leads to
  std::optional<SampleAxis> axis;  // along which its devices lie, if they work on the same samples
  bool routed = false;             // a router sends rows to its devices: how many is known when they go
};
constexpr std::array shard_rules = {
    ShardRule{ShardKind::Expert, "expert", expert_label, capacity_label, capacity_label, std::nullopt, true},
    ShardRule{ShardKind::Tp, "tp", tp_label, {}, {}, SampleAxis::Tp},
    ShardRule{ShardKind::Sequence, "sequence", sequence_label, {}, {}, SampleAxis::Tp},
    ShardRule{ShardKind::Context, "context", sequence_label, {}, {}, SampleAxis::Cp},
    ShardRule{ShardKind::Heads, "heads", tp_label, {}, sequence_label, SampleAxis::Cp},
};
constexpr const ShardRule& rule_of(ShardKind kind) {
  return shard_rules[static_cast<size_t>(kind)];
}
constexpr std::string_view label_of(ShardKind kind) {
  return rule_of(kind).label;
}
static_assert(std::ranges::count_if(shard_rules, &ShardRule::routed) == 1);

/// Something for every axis.
template <class T>
struct BySampleAxis {
  std::array<T, sample_axes.size()> of = {};
  T& operator[](SampleAxis axis) { return of[static_cast<size_t>(axis)]; }
  const T& operator[](SampleAxis axis) const { return of[static_cast<size_t>(axis)]; }
  friend bool operator==(const BySampleAxis&, const BySampleAxis&) = default;
};

/// Devices along every axis.
struct AxisSizes : BySampleAxis<int> {
  AxisSizes() { of.fill(1); }
  int all() const {
    int product = 1;
    for (const int size : of) product *= size;
    return product;
  }
  friend bool operator==(const AxisSizes&, const AxisSizes&) = default;
};

/// Something for every kind.
template <class T>
struct ByShardKind {
  std::array<T, shard_rules.size()> of = {};
  T& operator[](ShardKind kind) { return of[static_cast<size_t>(kind)]; }
  const T& operator[](ShardKind kind) const { return of[static_cast<size_t>(kind)]; }
  /// Of the kind to whose devices a router sends rows.
  T& routed() { return (*this)[std::ranges::find_if(shard_rules, &ShardRule::routed)->kind]; }
  const T& routed() const { return (*this)[std::ranges::find_if(shard_rules, &ShardRule::routed)->kind]; }
  friend auto operator<=>(const ByShardKind&, const ByShardKind&) = default;
};

/// A number of rows, as a multiple of those that a device has if all have equally many: in parts of this.
constexpr int64_t one_load = 10'000;
/// `1.5`
std::string print_load(int64_t load);
std::optional<int64_t> parse_load(std::string_view text);

/// Into how many shards the dimensions of each label are divided.
struct ShardCounts : ByShardKind<int64_t> {
  /// Where experts are divided whose rows are sorted: a device has memory for so many at once. 0: for a balanced load.
  int64_t buffer = 0;

  ShardCounts() { of.fill(1); }
  ShardCounts(ShardKind kind, int64_t count) : ShardCounts() { (*this)[kind] = count; }

  int64_t all() const {
    int64_t product = 1;
    for (const int64_t count : of) product *= count;
    return product;
  }
  friend auto operator<=>(const ShardCounts&, const ShardCounts&) = default;
};

/// Which tokens of a sample a device has where context parallelism divides them. Contiguous: device r of P has the r-th
/// of P blocks. Zigzag: blocks r and 2P-1-r of 2P, so that causal attention, in which later tokens look at more keys,
/// is as much work on every device.
enum class TokenOrder { Zigzag, Contiguous };
constexpr std::array<std::string_view, 2> token_order_words = {"zigzag", "contiguous"};

/// Rows for which a device has memory among so many of each: a part of the balanced load, but no more than there are.
int64_t rows_in_buffer(int64_t rows, const ShardCounts& shards);

/// Extent of a dimension on one device: divided where its label is, grown as much where it is gathered.
int64_t local_extent(const Dim& dim, int64_t samples, const ShardCounts& shards);

/// `expert, tp or heads`: all of them, for messages.
std::string shard_kinds_in_words();
/// `expert=2 tp=4`; nothing if nothing is divided.
std::string print(const ShardCounts& shards);

/// Of one device: how many shards there are, and which of them it has.
struct LocalShard {
  int64_t count = 1, index = 0;
  friend bool operator==(const LocalShard&, const LocalShard&) = default;
};
struct LocalShards : ByShardKind<LocalShard> {
  int64_t buffer = 0;  // as in ShardCounts

  LocalShards() = default;
  LocalShards(ShardKind kind, LocalShard shard) { (*this)[kind] = shard; }

  ShardCounts counts() const {
    ShardCounts out;
    for (size_t k = 0; k < of.size(); ++k) out.of[k] = of[k].count;
    out.buffer = buffer;
    return out;
  }
};

}  // namespace piper
