// What the buffers of a device hold when a step runs on symbols instead of numbers.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/training_dag.h"

namespace piper::property {

/// Consecutive samples of the global batch.
struct Samples {
  int64_t first = 0, count = 0;
  friend auto operator<=>(const Samples&, const Samples&) = default;
};

/// A value for some samples; with an expert dimension: of which experts, and whose slots, in this order.
struct Tensor {
  ValueId value;
  int64_t first_expert = 0, experts = 0;  // 0 experts: the value has no expert dimension
  std::vector<Samples> slots;
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// What one backward pass of one slice adds to a gradient. `block`: of which experts, where every block adds its own
/// part.
struct Contribution {
  ChunkId chunk;
  Pass pass = Pass::B;
  Samples samples;
  int block = 0;
  friend auto operator<=>(const Contribution&, const Contribution&) = default;
};
/// How often each contribution has been added.
using Sum = std::map<Contribution, int>;

/// Weights of a bucket, piece by piece: 0 from before the step, 1 updated, absent: not here (or not worth reading).
struct Weights {
  BucketId bucket;
  int block = 0;  // which experts, if the bucket's parameters are cut
  std::vector<std::optional<int>> version;
};

/// Gradients of a bucket, piece by piece; absent: not here, or left over from a reduction.
struct Gradients {
  BucketId bucket;
  int block = 0;
  std::vector<std::optional<Sum>> pieces;
};

using Content = std::variant<std::monostate, Tensor, Weights, Gradients>;

std::string describe(const TrainingDag& dag, const Tensor& tensor);
/// The first few differences between what is there and what should be.
std::string difference(const TrainingDag& dag, const Sum& found, const Sum& wanted);

}  // namespace piper::property
