// Schedules from wherever a user keeps them.
#pragma once

#include <string>

#include "base/result.h"
#include "schedule/schedule.h"

namespace piper {

/// A path that ends in `.json` is the directive JSON of the original Piper, any other is the text form.
Result<Schedule> load_schedule(const std::string& path);

}  // namespace piper
