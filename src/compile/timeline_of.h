// The compiled order in the field's notation: what every class of devices runs, cell by cell.
#pragma once

#include <string>

#include "passes/passes.h"
#include "timelines/library.h"
#include "timelines/timeline.h"

namespace piper {

/// A cell of the schedule on one device: consecutive computations of one stage, pass and slice (or an overlapped pair).
struct TimedCell {
  TimelineCell cell;
  double start = 0, end = 0;
};

struct TimedRow {
  DeviceList devices;
  std::vector<TimedCell> cells;
};

/// One row per class of devices. Without stages in the schedule, a chunk's stage is the number of its group.
std::vector<TimedRow> timed_rows(const LinearDag& linear);

/// One row per rank of a valid timeline, each as soon as it can.
std::vector<TimedRow> timed_rows(const Timeline& timeline, const TimelineCosts& costs);

/// `0F0 0F1 (1F0;0B0)`, a line per row.
std::string print_timeline(const std::vector<TimedRow>& rows);

}  // namespace piper
