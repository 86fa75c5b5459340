// What the interleaved timelines share: groups of microbatches, and the order in which chunks take turns.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "timelines/library.h"

namespace piper::timelines {

/// Sizes of consecutive groups of microbatches. With request.group: groups of that size, the last one shorter.
/// Else as many groups as fit with at least one microbatch per rank, as equal as possible, larger ones first.
std::vector<int> microbatch_groups(const TimelineRequest& request);

/// One chunk's turn on one microbatch.
struct Turn {
  int chunk = 0;
  int microbatch = 0;
};

/// Group after group; inside a group chunk 0 for all its microbatches, then chunk 1, …
std::vector<Turn> forward_turns(const std::vector<int>& groups, int chunks);
/// The same with the chunks from last to first.
std::vector<Turn> backward_turns(const std::vector<int>& groups, int chunks);

/// The order of interleaved zero bubble (see interleaved_zb.cc), of which ZB-H1 is the case of one chunk.
Timeline interleaved_zero_bubble(const TimelineRequest& request);

/// `use --group 4 or --group 8`: the nearest sizes below and above request.group that are legal.
std::string nearest_legal_groups(const TimelineRequest& request,
                                 const std::function<bool(const TimelineRequest&)>& is_legal);

}  // namespace piper::timelines
