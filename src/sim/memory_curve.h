// Memory over time: the bytes that the plan's proof counts, at the times when operations start.
//
// Bytes are taken and returned in issue order. So an operation has taken its bytes when it and all operations issued
// before it have started; the highest point of the curve is exactly the peak of the proof.
#pragma once

#include <array>

#include "sim/simulate.h"

namespace piper {

struct MemoryPoint {
  double time = 0;
  std::array<int64_t, category_count> bytes{};  // from then on
  OpId op;                                      // that has just taken its bytes; none: before the first, after the last

  int64_t total() const;
};

/// Of one device of a lane. The first point stands at 0 with what is always there, the last at the end of the step.
std::vector<MemoryPoint> memory_curve(const Plan& plan, const Simulation& simulation, sim::LaneId lane);

}  // namespace piper
