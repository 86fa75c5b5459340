// The attention part of a layer: norm, projections, scores, output projection, residual.
#pragma once

#include "model/analytic/chunk_writer.h"

namespace piper {

/// Adds chunk `layer.INDEX.attention`; reads `x` (one reader), writes the residual stream `out`.
void add_attention(ChunkWriter& writer, int64_t index, const Flow& x, const Flow& out);

}  // namespace piper
