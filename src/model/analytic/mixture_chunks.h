// The feed-forward part of a mixture-of-experts layer: dispatch, experts, combine.
//
// Dispatch normalises, routes and fills each expert's slots; shared experts, which every token visits, run here too,
// on the same normalised input. Experts see [expert, capacity, hidden] only. Combine takes tokens out of their slots,
// weighs them, and adds the shared experts' result and the residual.
#pragma once

#include "model/analytic/chunk_writer.h"

namespace piper {

/// Adds chunks `layer.INDEX.dispatch`, `.experts` and `.combine`; x has the two readers dispatch and combine.
void add_mixture(ChunkWriter& writer, int64_t index, const Flow& x, const Flow& out);

}  // namespace piper
