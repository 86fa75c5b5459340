// The attention part of a layer: norm, projections, scores, output projection, residual.
#pragma once

#include "model/analytic/chunk_writer.h"

namespace piper {

/// Queries, keys and values as the scores see them: widths of one head, and how many elements are stored.
struct Heads {
  int64_t query_width, value_width;
  int64_t stored;  // elements of q, k and v of one token
};
/// q, k, v = W x, with or without a norm of each head of q and k.
Heads plain_projections(WorkTally& tally, const ModelConfig& config);
/// softmax(q k^T) v, and what of it is kept besides q, k, v and the result: log-sum-exp, or the scores as Korthikanti et
/// al. count them.
void attend(WorkTally& tally, const ModelConfig& config, const Heads& heads, int64_t sequence);

/// Adds chunk `layer.INDEX.attention`; reads `x` (one reader), writes the residual stream `out`.
void add_attention(ChunkWriter& writer, int64_t index, const Flow& x, const Flow& out);

}  // namespace piper
