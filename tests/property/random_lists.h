// Random schedules on explicit lists of devices, with orders written by hand; and recomputation for all.
#pragma once

#include <string>

#include "property/random_directives.h"
#include "property/random_schedule.h"

namespace piper::property {

/// A recompute directive for some chunks, or nothing.
std::string random_recompute(Random& random, const RandomModel& model);

Scenario random_lists(Random& random);

}  // namespace piper::property
