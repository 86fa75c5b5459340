// What one process of a run keeps while others are lost and replaced: `--on-fault replace`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/loop/protect/recent_states.h"
#include "train/metrics.h"
#include "train/planted_fault.h"
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

/// When things happened, as `seconds_now`; none: not in this process, which may have come later.
struct RecoveryTimes {
  std::optional<double> last_step;  // was done, before others were lost
  std::optional<double> noticed;    // that they are
  std::optional<double> agreed;     // who goes on
  std::optional<double> met;        // with the others
  double planned = 0, restored = 0;
};

struct Recovery {
  bool wanted = false;
  int epoch = -1;                  // of the processes, counted from 0; none yet
  int refusals = 0;                // since others were lost
  std::vector<std::string> hosts;  // of the processes of the epoch, by rank
  RecentStates states;
  RunReport report;
  std::string why = {};  // others were lost, when they were last
  RecoveryTimes times;
  std::optional<PlantedFault> fault;  // that strikes this process while it gives devices back what they held
};

}  // namespace piper
