// The row of DualPipeV, of which both DualPipeV and DualPipe are made.
#pragma once

#include <vector>

#include "timelines/row.h"

namespace piper::timelines {

/// Row of `rank` among `ranks`, `microbatches` in each of its two chunks; needs microbatches >= 2 * ranks.
std::vector<TimelineCell> dualpipev_row(int rank, int ranks, int microbatches, const std::vector<StageOnRank>& chunks);

}  // namespace piper::timelines
