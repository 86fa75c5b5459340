// use list(…): the list scheduler on what is placed, with the costs of its stages.
#pragma once

#include "directives/placed_stages.h"
#include "ir/compute_costs.h"
#include "timelines/timeline.h"

namespace piper {

/// A stage costs what its chunks compute; a message, the largest that goes from one stage to the next. Where a chunk
/// does not say how its backward splits, the stage has whole backwards. E313: groups that share devices. E314: memory
/// limit too small, or an option that list does not have. E113: too large.
Result<Timeline> list_timeline(const TrainingDag& dag, const PlacedStages& stages, const Use& use, const Costs& costs,
                               DirectiveId by);

}  // namespace piper
