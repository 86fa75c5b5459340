// When every cell of a timeline runs, if each rank works through its row as soon as it can.
#pragma once

#include <vector>

#include "schedule/timeline.h"
#include "schedule/timelines/library.h"

namespace piper {

struct CellTime {
  double start = 0;
  double end = 0;
};

/// By rank and cell. B takes I + W; an overlapped pair starts when both parts are ready and takes `overlap`, or the sum of
/// them.
/// `comm` is added where a dependence crosses ranks. The timeline must be valid.
std::vector<std::vector<CellTime>> run_clock(const Timeline& timeline, const TimelineCosts& costs,
                                             std::optional<double> overlap = {});

}  // namespace piper
