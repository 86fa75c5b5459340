// When every cell of a timeline runs, if each rank works through its row as soon as it can.
#pragma once

#include <vector>

#include "timelines/library.h"
#include "timelines/timeline.h"

namespace piper {

struct CellTime {
  double start = 0;
  double end = 0;
};

/// If costs are given by stage, there is one for every stage of the timeline (E314).
Checked check_costs(const Timeline& timeline, const TimelineCosts& costs, const SourceRange& where);

/// By rank and cell. B takes I + W; an overlapped pair starts when both parts are ready and takes `overlap`, or the sum
/// of them. `comm` is added where a dependence crosses ranks. The timeline must be valid, and the costs checked.
std::vector<std::vector<CellTime>> run_clock(const Timeline& timeline, const TimelineCosts& costs,
                                             std::optional<double> overlap = {});

}  // namespace piper
