// Timelines in the field's notation, as `piper schedule` prints them: a line per rank, blanks between the cells.
//
//   rank 0: 0F0 0F1 (1F0;0B0) 2I3 2W3       # labels and comments are optional
#pragma once

#include <string>

#include "base/result.h"
#include "timelines/timeline_source.h"

namespace piper {

/// Without labels; ends with a newline.
std::string print_notation(const ActionTimeline& timeline);

/// Empty lines are skipped. E101 at a cell that cannot be read.
Result<ParsedTimeline> parse_notation(const SourceFilePtr& file);

}  // namespace piper
