// The timelines of the library that have the placement of a problem.
#pragma once

#include "timelines/list_problem.h"

namespace piper::timelines {

/// Those that are defined for its sizes and keep its memory limit, in the order of the library. None above 1024 ranks.
std::vector<ListOrder> named_orders(const ListProblem& problem, const ListPasses& passes);

}  // namespace piper::timelines
