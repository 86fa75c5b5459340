// A schedule with some of its lines changed.
#pragma once

#include "base/result.h"
#include "schedule/schedule.h"

namespace piper {

/// Each directive takes the place of the only one with its verb. E105: there is none, or several.
Result<Schedule> with_directives(Schedule schedule, const std::vector<Directive>& instead);

}  // namespace piper
