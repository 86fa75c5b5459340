// Sizes of a model's values as functions of the number of samples in a slice of the batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace piper {

enum class DType { Float64, Float32, BFloat16, Float16, Int64, Int32, Int8, Bool };
constexpr size_t dtype_count = 8;

/// Larger numbers are refused wherever a model comes from.
constexpr int64_t largest_amount = 1'000'000'000'000'000'000;
constexpr int64_t largest_ring = 1'000'000;  // devices
/// Larger values and parameters are refused: 64 PiB for the whole batch.
constexpr int64_t largest_value_bytes = int64_t{1} << 56;

int64_t bytes_of(DType dtype);
std::string_view name(DType dtype);
std::optional<DType> dtype_named(std::string_view text);
std::vector<std::string> dtype_names();

/// One dimension of a value: a fixed size, or ceil(size * samples / divisor) if it grows with the batch.
/// The label says how `shard` may divide it among devices, see the labels below.
struct Dim {
  int64_t size = 1;
  bool per_sample = false;
  int64_t divisor = 1;
  std::string label;
  /// Sizes of what it consists of, one after another, if each is divided by itself: queries, keys and values of a
  /// fused projection.
  std::vector<int64_t> blocks = {};

  int64_t extent(int64_t samples) const;
  bool falls_into(int64_t parts) const;
  friend bool operator==(const Dim&, const Dim&) = default;
};

using Shape = std::vector<Dim>;

/// Elements of one slice of `samples` samples; saturates instead of overflowing.
int64_t elements(const Shape& shape, int64_t samples);

/// Labels of dimensions. Expert parallelism divides experts, and gathers the slots that each device has for them, or
/// sends rows that are sorted by expert to where their experts are; tensor parallelism divides heads, inner widths and
/// the vocabulary; sequence parallelism divides tokens.
constexpr std::string_view expert_label = "expert", capacity_label = "capacity", routed_label = "routed";
constexpr std::string_view tp_label = "tp", sequence_label = "sequence";
/// The dimension with this label.
const Dim* labelled(const Shape& shape, std::string_view label);

/// Work or bytes of one slice: fixed + per_sample * samples.
struct Amount {
  int64_t fixed = 0;
  int64_t per_sample = 0;

  int64_t at(int64_t samples) const;
  friend bool operator==(const Amount&, const Amount&) = default;
};

std::string print(const Shape& shape);    // [expert=8, capacity=b*5/4, 64], [tp=4+2+2, 8]
std::string print(const Amount& amount);  // 0, 12, 12*b, 12 + 3*b

}  // namespace piper
