// The place in the text of an `order` that an error is about.
#pragma once

#include "ir/training_dag.h"

namespace piper {

/// From the element of the order that selects `first` to the one that selects `second`; the whole directive if it is
/// no order, or was not written as text.
SourceRange place_in_order(const TrainingDag& dag, DirectiveId by, NodeId first, NodeId second);

}  // namespace piper
