// Timelines from wherever a user keeps them: CSV of torch.distributed.pipelining, the notation, or a schedule's orders.
#pragma once

#include <string>

#include "base/result.h"
#include "timelines/timeline_source.h"

namespace piper {

/// Reads a timeline and checks that it can run (`validate_actions.h`). What it is, is told by the name (.csv; .json and
/// .piper are schedules with an `order` per rank), else by the text: `[` starts JSON, commas make a CSV, blanks the
/// notation. E101, E106, E107, E108, E113, E314.
Result<ParsedTimeline> load_timeline(const std::string& path);
Result<ParsedTimeline> parse_timeline(const SourceFilePtr& file);

}  // namespace piper
