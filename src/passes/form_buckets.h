// Which parameters are reduced, gathered and updated together, and who holds them.
#pragma once

#include "base/result.h"
#include "ir/training_dag.h"

namespace piper {

/// Fills dag.buckets: parameters with the same holders, in backward order, up to the size that replicate says. E301,
/// E308, E310.
Checked form_buckets(TrainingDag& dag);

}  // namespace piper
