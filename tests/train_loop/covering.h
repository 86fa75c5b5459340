// Which combinations are trained: all of them, or so few that every two values of two factors still meet.
#pragma once

#include <array>
#include <vector>

#include "train_loop/combination.h"

namespace piper {

/// One value of every factor, by its number.
constexpr size_t factor_count = 9;
using Point = std::array<int, factor_count>;
Point factor_sizes();
Combination combination_at(const Point& point);

/// A value of each of two factors.
struct FactorPair {
  size_t a = 0, b = 0;  // factors, a < b
  int value_a = 0, value_b = 0;
};

struct Covering {
  std::vector<Combination> trained;
  std::vector<Combination> excluded;  // one for every pair that no combination without exclusion has
  std::vector<Combination> too_long;  // one for every pair that only the full product has
};
/// More than eight stages: too many layers for a test that everybody runs.
bool is_too_long(const Combination& combination);
/// Pairwise and deterministic: the same on every machine. Computed once.
const Covering& pairwise_covering();

/// All combinations of this model and timeline: grids, levels of ZeRO, recomputation, halves and pairs. Buckets,
/// release and legs change from one to the next.
std::vector<Combination> full_product(const std::string& kind, const std::string& timeline);

}  // namespace piper
