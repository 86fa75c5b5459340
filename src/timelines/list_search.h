// Improves an order by moving passes on its longest path.
#pragma once

#include <cstdint>

#include "timelines/list_problem.h"

namespace piper::timelines {

struct ListSearch {
  /// Visits of a pass that may be spent: the same output on fast and slow machines.
  double visits = 0;
  /// By how much longer an order may get at first, in mean times of a pass; falls to 0.
  double heat = 0.5;
  /// Stop when this short.
  double goal = 0;
  uint64_t seed = 1;
};

/// Keeps the memory limit; never longer than before. The order must run. Returns the makespan.
double improve(const ListPasses& passes, ListOrder& order, const ListSearch& search);

}  // namespace piper::timelines
