// Batch normalisation, as far as its running statistics go: it changes them without saying so in its schema, and in
// training it never reads them.
#pragma once

#include <string_view>

#include "capture/record/operator_graph.h"

namespace piper {

/// Whether the operator changes an argument of this name although its schema does not say so.
bool changes_silently(std::string_view op, std::string_view argument);

/// Takes the running statistics out of a call that does not read them; then it does not change them either.
void forget_statistics(const OperatorGraph& graph, Call& call);

/// Takes out of a backward call what it is given in vain and would have to be kept for it: in training the running
/// statistics, in evaluation those of the slice.
void forget_unread_statistics(const OperatorGraph& graph, Call& call);

}  // namespace piper
