// The two ends of the model: tokens to vectors, vectors to the loss.
#pragma once

#include "model/analytic/chunk_writer.h"

namespace piper {

/// Adds chunk `embed`: token table, for gpt also learned positions and dropout.
void add_embed(ChunkWriter& writer, ValueId tokens, const Flow& out);

/// Adds chunk `head`: final norm (gpt: none, as its published parameter count has it), vocabulary projection, loss.
void add_head(ChunkWriter& writer, const Flow& x, ValueId labels, ValueId loss);

}  // namespace piper
