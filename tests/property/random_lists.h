// Random schedules on explicit lists of devices, with orders written by hand; and the directives all schedules share.
#pragma once

#include <string>

#include "property/random_schedule.h"

namespace piper::property {

/// Arguments of a replicate directive after its devices.
struct ReplicaChoice {
  int zero = 0;
  std::string arguments;
};
ReplicaChoice random_replicas(Random& random);

/// A recompute directive for some chunks, or nothing.
std::string random_recompute(Random& random, const RandomModel& model);
/// A prefetch directive for the gathers of all or some passes.
std::string random_prefetch(Random& random);

Scenario random_lists(Random& random);

}  // namespace piper::property
