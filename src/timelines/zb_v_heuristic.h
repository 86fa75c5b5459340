// The cost-aware order of ZB-V by its authors.
#pragma once

#include "timelines/library.h"

namespace piper::timelines {

/// Grows the order pass by pass on a clock, puts W where a rank would wait, and repeats with what it learnt about the
/// ranks' idle times as long as that helps. Any size; nothing if stages differ so much that it does not know how to go
/// on.
std::optional<Timeline> zb_v_heuristic(int ranks, int microbatches, const TimelineCosts& costs);

}  // namespace piper::timelines
