// The parts of a layer as tensor parallelism sees them: what works token by token, what works head by head or on some
// of the inner features, and sums between them.
#pragma once

#include "model/analytic/chunk_writer.h"

namespace piper {

/// Adds chunks `layer.INDEX.attention.` norm, qkv, core (scope `core`), out and residual; reads `x`, which has one
/// gradient for norm and one for residual, writes the residual stream `out`.
void add_sharded_attention(ChunkWriter& writer, int64_t index, const Flow& x, const Flow& out);

/// Adds chunks `layer.INDEX.mlp.norm`, `layer.INDEX.mlp` and `layer.INDEX.mlp.residual` in the same way.
void add_sharded_mlp(ChunkWriter& writer, int64_t index, const Flow& x, const Flow& out);

}  // namespace piper
