// The compiled order in the field's notation: what every class of devices runs, cell by cell.
#pragma once

#include <string>

#include "passes/passes.h"
#include "schedule/timeline.h"

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

/// `0F0 0F1 (1F0;0B0)`, a line per row.
std::string print_timeline(const std::vector<TimedRow>& rows);

enum class GridColor { None, Ansi };

/// A picture of the schedule for a terminal of so many columns: time to the right, a row per class of devices, paged.
std::string print_grid(const std::vector<TimedRow>& rows, int columns, GridColor color);

}  // namespace piper
