// The cost-aware order of the zero-bubble paper for one stage per rank and a memory limit: ZB-1p, ZB-2p and ZB-H2.
#pragma once

#include "timelines/library.h"

namespace piper::timelines {

struct ZeroBubbleProblem {
  int ranks = 1;
  int microbatches = 1;
  TimelineCosts costs;
  TimelineMemory memory;
  /// Most that a rank may keep, in units of one forward; at least 1.
  double limit = 1;
};

/// Grows the order microbatch by microbatch on a clock: fill the pipeline up to the limit, then F and I in turn, and W
/// where a rank would wait. Tries eight variants and keeps the one with the shortest longest span of a rank.
Timeline zero_bubble_heuristic(const ZeroBubbleProblem& problem);

}  // namespace piper::timelines
