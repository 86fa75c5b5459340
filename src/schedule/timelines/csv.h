// Timelines as text that other tools exchange: one line per rank, cells in order, `0F0,(1F3;0B1)OVERLAP_F_B,2W3`.
#pragma once

#include <string>

#include "base/result.h"
#include "schedule/timeline.h"

namespace piper {

/// One line per rank, no header, no empty cells; ends with a newline.
std::string print_csv(const Timeline& timeline);

/// Reads passes only, no communication (E101 at the cell). Empty cells are idle steps and are skipped.
Result<Timeline> parse_csv(const SourceFilePtr& file);

}  // namespace piper
