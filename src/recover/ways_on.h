// The few schedules among which the best is chosen when devices are lost.
#pragma once

#include <functional>

#include "ir/training_dag.h"
#include "schedule/schedule.h"

namespace piper {

/// A step of which devices are lost: its schedule without earlier losses, and what that places where.
struct Loss {
  const Schedule& schedule;
  const TrainingDag& placed;
  const DeviceList& devices;  // all that are lost, in rising order
};

/// Says whether a schedule is legal, and remembers what it costs.
using Try = std::function<bool(const Schedule&)>;

/// Tries schedules for the devices that are left: replicas share the work of those that are lost, with stages as they
/// are or smaller ones; or stages are placed anew. `fits`: something that was tried so far does.
void try_ways_on(const Loss& loss, const Try& attempt, const std::function<bool()>& fits);

/// The same with its stages ordered by the list scheduler, which knows that they differ; nothing if nothing orders
/// them, or that does already.
std::optional<Schedule> listed(Schedule schedule);

}  // namespace piper
