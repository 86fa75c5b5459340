// The timeline `list` of the library: a request as a problem for the list scheduler (list_schedule.h).
#pragma once

#include "timelines/list_problem.h"

namespace piper::timelines {

/// Line for one stage per rank, V for two, a loop otherwise.
StagePlacement usual_placement(int stages_per_rank);
/// The other way round: 1 on a line, 2 in a loop, a V and two directions, 4 in a W.
int usual_stages_per_rank(StagePlacement placement);

/// For a request that list accepts, with stages_per_rank filled in.
ListProblem list_problem(const TimelineRequest& request);

}  // namespace piper::timelines
