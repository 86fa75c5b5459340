// A timeline as a picture for the terminal: time to the right, a row per class of devices.
#pragma once

#include <string>
#include <vector>

#include "compile/timeline_of.h"

namespace piper {

enum class GridColor { None, Ansi };
enum class GridTime { Seconds, Units };

struct GridOptions {
  int columns = 100;
  GridColor color = GridColor::None;
  GridTime time = GridTime::Seconds;
};

/// Every cell shows its pass and microbatch, as wide as it is long; a row that is wider than the terminal goes on
/// below. What would fill more than a screen is drawn with a letter per cell, and what would still, with a letter per
/// column.
std::string print_grid(const std::vector<TimedRow>& rows, const GridOptions& options);

}  // namespace piper
