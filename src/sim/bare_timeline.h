// A timeline without a model: what each rank does with its time, and how many activations it keeps.
#pragma once

#include <vector>

#include "timelines/clock.h"

namespace piper {

/// By rank; times in the unit of the costs.
struct TimelineReport {
  double makespan = 0;
  std::vector<double> busy, bubble;             // bubble = makespan - busy
  std::vector<double> span, span_bubble;        // from the first start to the last end; what of it is not busy
  std::vector<int> peak_until_w, peak_until_i;  // chunks kept from F until their B or W; until their B or I
};

/// The timeline must be valid. `overlap`: what a pair takes; absent: the sum of its parts.
TimelineReport timeline_report(const Timeline& timeline, const TimelineCosts& costs, std::optional<double> overlap);

}  // namespace piper
