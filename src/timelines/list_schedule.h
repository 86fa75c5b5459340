// The list scheduler: an order for stages of any cost on any ranks within a memory limit. For uneven stages, where the
// published rules leave time unused.
//
// Candidates are passes of a list scheduler with several weights (list_pass.h) and every timeline of the library that
// has this placement and fits the limit (list_named.h); the best of them are improved by a search (list_search.h). The
// work is bounded by a number of steps, not by a clock: equal input gives equal output on every machine.
#pragma once

#include "timelines/list_problem.h"

namespace piper::timelines {

struct ListSchedule {
  Timeline timeline;
  double makespan = 0;
  /// No order can be shorter.
  double lower_bound = 0;
};

/// How much to spend on it: visits of a pass by the search, per pass and in all.
struct ListEffort {
  double visits_per_pass = 2e5;
  double visits = 6e7;
};

/// Refuses a limit with which a microbatch does not get through (E314), and too many passes (E113).
Checked check_problem(const ListProblem& problem, const SourceRange& where);

/// For a problem that is not refused.
ListSchedule list_schedule(const ListProblem& problem, const ListEffort& effort = {});

}  // namespace piper::timelines
