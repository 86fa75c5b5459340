// The feed-forward part of a dense layer: norm, up, activation, down, residual.
#pragma once

#include "model/analytic/chunk_writer.h"

namespace piper {

/// Adds chunk `layer.INDEX.mlp`.
void add_mlp(ChunkWriter& writer, int64_t index, const Flow& x, const Flow& out);

}  // namespace piper
