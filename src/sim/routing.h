// How tokens choose experts in a simulated step: what the devices that divide experts then have to do.
#pragma once

#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace piper {

struct Routing {
  /// Experts by how many rows they get: the k-th gets k^-skew as many as the first. 0: all get equally many (balanced).
  double skew = 0;
  /// Instead, what happened: the rows of each expert, again and again.
  std::vector<std::vector<double>> traced = {};
  bool balanced() const { return skew == 0 && traced.empty(); }
};
/// `balanced`, `zipf:1.2` (E111).
Result<Routing> parse_routing(const std::string& text);

/// E111: what happened was with another number of experts than the plan divides.
Checked check_routing(const Plan& plan, const Routing& routing);

namespace sim {

/// Rows of the busiest device of a group, as multiples of a balanced load: in the first round, which its buffer bounds,
/// and in further ones.
struct RowLoad {
  double first = 1, further = 0;
  int rounds = 1;  // at most
  friend auto operator<=>(const RowLoad&, const RowLoad&) = default;
};

/// Devices that divide so many experts, placed at random, or as they were: the mean over many placements, or over all
/// that happened, of the busiest. `buffer`: as in ShardCounts.
RowLoad row_load(int devices, int64_t experts, int64_t buffer, const Routing& routing);

/// By communication; one load for what is none of rows.
Table<CommunicationId, RowLoad> row_loads(const Plan& plan, const Routing& routing);

}  // namespace sim
}  // namespace piper
