#include "sim/device_use.h"

#include <algorithm>

namespace piper {
namespace {

struct Interval {
  double start, end;
};

/// Sorted and without overlap.
std::vector<Interval> united(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
  std::vector<Interval> out;
  for (const Interval& next : all) {
    if (!out.empty() && next.start <= out.back().end)
      out.back().end = std::max(out.back().end, next.end);
    else
      out.push_back(next);
  }
  return out;
}

double length(const std::vector<Interval>& intervals) {
  double sum = 0;
  for (const Interval& i : intervals) sum += i.end - i.start;
  return sum;
}

double common(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double sum = 0;
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[k].end) - std::max(a[i].start, b[k].start));
    a[i].end < b[k].end ? ++i : ++k;
  }
  return sum;
}

}  // namespace

std::vector<DeviceUse> device_use(const Plan& plan, const Simulation& simulation) {
  std::vector<DeviceUse> out;
  for (size_t d = 0; d < simulation.devices.size(); ++d) {
    const PlanTemplate& t = plan.templates[static_cast<size_t>(simulation.plan_of[d])];
    DeviceUse use;
    use.busy.assign(plan.streams.size(), 0);
    std::vector<Interval> computing, communicating;
    for (size_t i = 0; i < t.ops.size(); ++i) {
      const size_t global = static_cast<size_t>(simulation.times.first[d]) + i;
      const Interval when{simulation.times.start[global], simulation.times.end[global]};
      use.busy[static_cast<size_t>(t.ops[i].stream)] += when.end - when.start;
      (is_communication(t.ops[i].kind) ? communicating : computing).push_back(when);
    }
    computing = united(std::move(computing));
    communicating = united(std::move(communicating));
    use.compute = length(computing);
    use.communication = length(communicating);
    use.exposed = use.communication - common(computing, communicating);
    use.idle = simulation.seconds - use.compute - use.exposed;
    out.push_back(std::move(use));
  }
  return out;
}

}  // namespace piper
