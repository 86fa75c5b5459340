// The cells that all text forms of timelines share: `2I3`, an overlapped pair, `0SEND_F3`.
#pragma once

#include "base/result.h"
#include "timelines/timeline_source.h"

namespace piper {

/// How a form separates cells and marks pairs.
struct TimelineForm {
  std::string_view separators;  // between cells of a row
  std::string_view pair_mark;   // after a pair's closing bracket
  std::string_view example;     // in messages
  bool has_labels = false;      // `rank 0:` may stand before a row, `#` starts a comment
};

/// A row per line; lines of nothing but idle cells at the end are no ranks. E101 at a cell that cannot be read, with
/// the nearest that can; E113 for texts that are too large.
Result<ParsedTimeline> read_actions(const SourceFilePtr& file, const TimelineForm& form);

}  // namespace piper
