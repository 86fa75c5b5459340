// The directive JSON of the original Piper: an array of objects such as {"op": "place", "filter": {"PP": 0},
// "devices": [0, 1]}. What each field means here: docs/schedule.md.
#pragma once

#include <string>

#include "base/result.h"
#include "schedule/schedule.h"

namespace piper {

/// Reads and checks every rule of the format. The original applies directives in a fixed order, whatever the order in
/// the file; so the result is in canonical order: devices, split, place, replicate, shard, order. E106, E107, E113.
Result<Schedule> parse_json_schedule(const SourceFilePtr& file);

/// One directive per line. What the format cannot say is refused (E107): mesh, recompute, prefetch, use, zero=1, ranges
/// …
Result<std::string> print_json_schedule(const Schedule& schedule);

/// BI and BW of the same tags both occur, once each, in one order, BI first (E107).
Checked check_backward_halves(const Schedule& schedule);

/// One more than the largest device that a list names; 1 if none does.
int implied_devices(const Schedule& schedule);

}  // namespace piper
