// The low-memory timelines on a V: a pattern repeated every six slots, squeezed without raising its peak of memory.
#pragma once

#include <array>
#include <vector>

#include "timelines/library.h"

namespace piper::timelines {

/// Slots of F of chunk 0, F of chunk 1, I of chunk 1 and I of chunk 0 of microbatch 0, for every rank.
using VPattern = std::vector<std::array<int, 4>>;

/// Repeats the pattern, fills its holes with W, moves passes forward in two rounds (first with, then without W in
/// place), and fills the holes again, W of chunk 1 first.
Timeline squeeze_v_pattern(const VPattern& pattern, int microbatches);

}  // namespace piper::timelines
