// What one process of a run keeps while others are lost and replaced: `--on-fault replace`.
#pragma once

#include <optional>
#include <string>

#include "train/loop/protect/recent_states.h"
#include "train/metrics.h"
#include "train/step_times.h"
#include "train/tensorboard.h"

namespace piper {

/// What rank 0 writes and says about a run, from its first step to its last.
struct RunReport {
  std::optional<MetricsFile> metrics;
  std::optional<EventFile> events;
  double first_loss = 0;
  StepTimes times;
};

struct Recovery {
  bool wanted = false;
  RecentStates states;
  RunReport report;
  std::string why = {};                     // others were lost, when they were last
  std::optional<double> failed, met_again;  // when, as `seconds_now`
};

}  // namespace piper
