// Stages of which no replica is left are placed on other devices.
#pragma once

#include "recover/sharing.h"

namespace piper {

/// Schedules in which nothing is placed on what is left of these placements: fewer stages of equal size where place has
/// cut them, and the same stages with those of a dead device on a neighbour's.
std::vector<Schedule> placed_anew(const Loss& loss, const std::vector<GroupId>& dead);

}  // namespace piper
