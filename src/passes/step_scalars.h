// The node that sums up the step's scalars.
#pragma once

#include "ir/training_dag.h"

namespace piper {

/// Over all declared devices that are not lost: those on which nothing is placed have no other part in the step, and
/// know its loss too.
NodeId add_scalars(TrainingDag& dag);

}  // namespace piper
