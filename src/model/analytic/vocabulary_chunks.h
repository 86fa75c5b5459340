// The two ends of the model where the vocabulary is sharded: tables of which each device has some rows, and a loss that
// never joins the logits.
#pragma once

#include "model/analytic/chunk_writer.h"

namespace piper {

/// Adds chunk `embed.table`, which gives each device a part of the sum, and for gpt `embed` (positions and dropout).
void add_sharded_embed(ChunkWriter& writer, ValueId tokens, const Flow& out);

/// Adds chunks `head.norm` (gpt: none), `head.logits` with their maxima, `head.sum` of the exponentials, `head.pick`
/// of what the labels name, and `head` for the loss.
void add_sharded_head(ChunkWriter& writer, const Flow& x, ValueId labels, ValueId loss);

}  // namespace piper
