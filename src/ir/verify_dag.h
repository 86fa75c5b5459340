// What every rewrite must leave intact.
#pragma once

#include "base/result.h"
#include "ir/training_dag.h"

namespace piper {

/// Ids point somewhere, values come from who writes them, and once communication is in place (`residences` known and a
/// node other than a computation exists) they reach readers on the same devices in the same placement (E410). `places`:
/// where each node was written, if the DAG was read from text.
Checked verify(const TrainingDag& dag, const std::vector<SourceRange>& places = {});

}  // namespace piper
