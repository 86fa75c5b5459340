// A timeline run with the least times of its passes: a lower bound of every step that follows it.
#pragma once

#include "search/microbatch.h"
#include "timelines/timeline.h"

namespace piper {

/// By rank.
struct PipelineTimes {
  std::vector<double> end;
  /// Of every stage of the rank: when the pass that completes its gradients may start.
  std::vector<std::map<int, double>> last_backward;
};

/// A pass starts when the one before it on its rank has ended and its input is there. In a pair each part waits for its
/// own input only; they share the device's computing time, and communication of one hides behind the other. `transfer`:
/// seconds between ranks. The timeline must be valid.
PipelineTimes run_pipeline(const Timeline& timeline, const std::vector<StageSeconds>& stages, double transfer);

/// What a stage keeps, and what its last instance, the first to run backward, needs then.
struct StageMemory {
  InstanceMemory all, last;
};

/// Most bytes that a rank keeps at one time.
struct ActivationPeak {
  int64_t any = 0;             // at any time
  WholeBytes with_whole = {};  // while a pass runs, with what is whole for it
};
ActivationPeak peak_activations(const std::vector<TimelineCell>& row, const std::vector<StageMemory>& stages);

}  // namespace piper
