// The kinds of data, one file each.
#pragma once

#include "train/data/token_source.h"

namespace piper {

using TokenSourcePtr = std::unique_ptr<TokenSource>;

/// A word is followed by one of four, chosen by hash: the best loss is 7/4 ln 2 = 1.213.
TokenSourcePtr synthetic_tokens(uint64_t seed, const SampleShape& shape);

/// The first token is a hash of the sample's number; x is followed by 5 x + 7.
TokenSourcePtr reference_tokens(const SampleShape& shape);

/// Of text or tokens. Several sources take turns, by their weights.
Result<TokenSourcePtr> mixture_of_files(const DataConfig& config, const SampleShape& shape, DataSplit split);

}  // namespace piper
