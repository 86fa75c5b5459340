// The one pass or the two of a cell.
#pragma once

#include <variant>

#include "timelines/actions.h"

namespace piper {

template <class Visit>
void for_each_op(const TimelineCell& cell, Visit visit) {
  visit(cell.first);
  if (cell.second) visit(*cell.second);
}

/// None if the action communicates.
template <class Visit>
void for_each_op(const TimelineAction& action, Visit visit) {
  if (const auto* cell = std::get_if<TimelineCell>(&action)) for_each_op(*cell, visit);
}

}  // namespace piper
