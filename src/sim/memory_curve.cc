#include "sim/memory_curve.h"

#include <algorithm>
#include <numeric>

#include "plan/issue_order_memory.h"

namespace piper {

int64_t MemoryPoint::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

std::vector<MemoryPoint> memory_curve(const Plan& plan, const Simulation& simulation, sim::LaneId lane) {
  const PlanTemplate& t = plan.templates[simulation.plan_of[lane]];
  const FirstTouches touches(t);
  std::vector<MemoryPoint> curve;
  MemoryPoint now;
  const auto add = [&](BufferId buffer, int64_t sign) {
    const PlanBuffer& b = t.buffers[buffer];
    now.bytes[static_cast<size_t>(b.category)] += sign * b.bytes;
  };
  for (const BufferId b : t.buffers.ids())
    if (t.buffers[b].persistent) add(b, +1);
  curve.push_back(now);
  for (const OpId i : t.ops.ids()) {
    now.time = std::max(now.time, simulation.times.start[simulation.times.at(lane, i)]);
    now.op = i;
    for (const BufferId b : touches.of(i))
      if (!t.buffers[b].persistent) add(b, +1);
    curve.push_back(now);
    for (const BufferId b : t.ops[i].frees) add(b, -1);
  }
  now.time = simulation.seconds;
  now.op = {};
  curve.push_back(now);
  return curve;
}

}  // namespace piper
