// The critical path of a step: the chain of operations, each of which started when the one before it ended.
#pragma once

#include "sim/simulate.h"

namespace piper {

struct CriticalStep {
  sim::LaneId lane;
  OpId op;
  double start = 0, end = 0;
  double issued = 0;  // seconds before it that only the host's issue explains
};

/// From the start of the step to its end. Without gaps: every step starts when the one before it has ended, or when the
/// host has issued it.
std::vector<CriticalStep> critical_path(const Simulation& simulation);

/// Seconds of the path that were spent on one thing.
struct PathShare {
  std::string what;
  double seconds = 0;
  int steps = 0;
};
/// By category, most first: `F`, `B`, `update`, `issue`; communication with the links that limit it: `all_to_all,
/// nvlink`.
std::vector<PathShare> path_shares(const Plan& plan, const Simulation& simulation,
                                   const std::vector<CriticalStep>& path);
/// By operation, whatever its slice of the batch, most first: `head B`.
std::vector<PathShare> path_operations(const Plan& plan, const Simulation& simulation,
                                       const std::vector<CriticalStep>& path);

}  // namespace piper
