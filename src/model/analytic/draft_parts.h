// Pieces that several chunks of a transformer share.
#pragma once

#include "model/analytic/chunk_writer.h"

namespace piper {

Bias bias_of(const ModelConfig& config);
Bias norm_bias(const ModelConfig& config);

/// A chunk that reads `x` alone and writes `out`; its backward reads x and the gradients of out.
ChunkDraft residual_draft(std::string name, const Flow& x, const Flow& out);

/// A chunk that makes `out` of `in` alone, and needs neither for the gradient of `in`.
ChunkDraft draft_between(std::string name, std::vector<ScopeTag> scopes, const Flow& in, const Flow& out);

/// The norm at the start of a block; what it puts out is kept for the linear layers behind it.
void input_norm(WorkTally& tally, const ModelConfig& config);

/// Dropout (if any) and residual at the end of a block. BW needs the gradient of the last linear layer's output: that
/// is the block's own incoming gradient, or with dropout a masked copy.
void residual(WorkTally& tally, const ModelConfig& config, ChunkDraft& draft, const std::vector<ValueId>& gradients);

/// up (and gate), activation, down; the input of `up` is kept by the caller, the gradient of down's output handed by
/// it.
void feed_forward(WorkTally& tally, const ModelConfig& config, const std::string& prefix, int64_t width);

}  // namespace piper
