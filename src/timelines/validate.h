// Can this timeline run, and does it do all the work? For timelines of any origin.
#pragma once

#include "base/result.h"
#include "timelines/timeline.h"
#include "timelines/timeline_source.h"

namespace piper {

/// What the timeline must cover. 0: whatever it mentions, at least one of each.
struct TimelineExtent {
  int stages = 0;
  int microbatches = 0;
};

/// Accepts a timeline (E314 otherwise, naming cell, rank and reason) if
///  - every rank has passes; every stage and microbatch has F, and either B or I and W, exactly once, all on one rank;
///  - every stage has one rank, or one for each of two directions that microbatches take through the ranks;
///  - no rank waits for ever: F needs F of the stage before; B and I need their F and B or I of the stage after;
///    W needs its I; a cell of two starts when both are ready.
Checked validate(const Timeline& timeline, const TimelineSource& source, const TimelineExtent& extent = {});

}  // namespace piper
