// Names that directives give to what filters then select: stages, parts of the batch.
#pragma once

#include "base/result.h"
#include "ir/training_dag.h"

namespace piper {

/// No scope, stage or dim is called so, and filters give it no meaning of their own (E206, at `as=`).
Checked check_new_tag(const TrainingDag& dag, const std::string& tag, DirectiveId by);

}  // namespace piper
