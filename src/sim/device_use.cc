#include "sim/device_use.h"

namespace piper {

Table<sim::LaneId, TimeUse> device_use(const Plan& plan, const Simulation& simulation) {
  Table<sim::LaneId, TimeUse> out;
  for (const sim::LaneId lane : simulation.devices.ids()) {
    const PlanTemplate& t = plan.templates[simulation.plan_of[lane]];
    std::vector<Activity> activities;
    for (const OpId i : t.ops.ids()) {
      const sim::SimulatedOpId global = simulation.times.at(lane, i);
      activities.push_back({t.ops[i].stream.value, is_communication(t.ops[i].kind), simulation.times.start[global],
                            simulation.times.end[global]});
    }
    out.push_back(time_use(activities, plan.streams.size(), simulation.seconds));
  }
  return out;
}

}  // namespace piper
