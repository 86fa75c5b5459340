// What the interleaved timelines share: groups of microbatches, and the order in which chunks take turns.
#pragma once

#include <string_view>
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

/// The order of interleaved 1F1B (whole backwards) and of interleaved zero bubble (split ones), of which ZB-H1 is the
/// case of one chunk.
Timeline interleaved(const TimelineRequest& request, Backward backward);

/// Refuses a request.group with which the timeline would deadlock, and names the nearest ones below and above (E314).
Checked check_group(std::string_view timeline, const TimelineRequest& request, const SourceRange& where,
                    bool (*is_legal)(const TimelineRequest&));

}  // namespace piper::timelines
