// What tensor parallelism divides a model along.
#pragma once

#include <cstdint>
#include <string>

namespace piper {

constexpr int64_t most_dims = 10;  // of a parameter

/// A dimension of the parameters whose names the pattern matches.
struct ShardSeed {
  std::string pattern;
  int dim = 0;
  friend bool operator==(const ShardSeed&, const ShardSeed&) = default;
};

}  // namespace piper
