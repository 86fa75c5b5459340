#include "sim/memory_curve.h"

#include <algorithm>
#include <numeric>

#include "plan/issue_order_memory.h"

namespace piper {

int64_t MemoryPoint::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

std::vector<MemoryPoint> memory_curve(const Plan& plan, const Simulation& simulation, size_t kind) {
  const PlanTemplate& t = plan.templates[static_cast<size_t>(simulation.plan_of[kind])];
  const FirstTouches touches(t);
  const double* start = simulation.times.start.data() + simulation.times.first[kind];
  std::vector<MemoryPoint> curve;
  MemoryPoint now;
  const auto add = [&](int buffer, int64_t sign) {
    const PlanBuffer& b = t.buffers[static_cast<size_t>(buffer)];
    now.bytes[static_cast<size_t>(b.category)] += sign * b.bytes;
  };
  for (size_t b = 0; b < t.buffers.size(); ++b)
    if (t.buffers[b].persistent) add(static_cast<int>(b), +1);
  curve.push_back(now);
  for (size_t i = 0; i < t.ops.size(); ++i) {
    now.time = std::max(now.time, start[i]);
    now.op = static_cast<int>(i);
    for (const int b : touches.of(i))
      if (!t.buffers[static_cast<size_t>(b)].persistent) add(b, +1);
    curve.push_back(now);
    for (const int b : t.ops[i].frees) add(b, -1);
  }
  now.time = simulation.seconds;
  now.op = -1;
  curve.push_back(now);
  return curve;
}

}  // namespace piper
