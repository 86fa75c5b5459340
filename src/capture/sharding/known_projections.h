// What decoders are usually sharded along: the inputs of the projections that end attention and feed-forward; the rows
// of the tables that have one for each word of the vocabulary.
#pragma once

#include "capture/record/recorder.h"
#include "model/shard_seed.h"

namespace piper {

/// By the names that projections have in our models and in those of transformers; empty if none is known.
std::vector<ShardSeed> known_projections(const std::vector<NamedTensor>& parameters);
std::vector<ShardSeed> known_vocabulary(const std::vector<NamedTensor>& parameters);

}  // namespace piper
