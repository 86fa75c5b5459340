#include "sim/device_use.h"

namespace piper {

std::vector<TimeUse> device_use(const Plan& plan, const Simulation& simulation) {
  std::vector<TimeUse> out;
  for (size_t d = 0; d < simulation.devices.size(); ++d) {
    const PlanTemplate& t = plan.templates[static_cast<size_t>(simulation.plan_of[d])];
    std::vector<Activity> activities;
    for (size_t i = 0; i < t.ops.size(); ++i) {
      const size_t global = static_cast<size_t>(simulation.times.first[d]) + i;
      activities.push_back({t.ops[i].stream, is_communication(t.ops[i].kind), simulation.times.start[global],
                            simulation.times.end[global]});
    }
    out.push_back(time_use(activities, plan.streams.size(), simulation.seconds));
  }
  return out;
}

}  // namespace piper
