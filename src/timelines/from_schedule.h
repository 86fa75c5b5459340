// The timeline that the orders of a schedule spell out, if they do: the way back from `as_schedule.h`.
#pragma once

#include "base/result.h"
#include "schedule/schedule.h"
#include "timelines/timeline_source.h"

namespace piper {

/// A rank per `order`, in file order; an element is a cell. Its filters name one stage, one microbatch (the dim that
/// `split` makes) and one pass. E105 at a filter that does not, E104 without orders.
Result<ParsedTimeline> timeline_of_orders(const Schedule& schedule, const SourceFilePtr& file);

}  // namespace piper
