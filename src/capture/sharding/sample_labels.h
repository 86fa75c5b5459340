// Where samples lie in what random calls make: their numbers go by samples of the whole batch, not of a slice.
//
// The seed is the first dimension of the model's inputs; the rest follows forward by the rules of label_rules.h. An
// operator of which nothing is known has its samples in the first dimension, as in all operators of libtorch that have
// a batch dimension: convolutions, pooling. What was found is compared with how the tensor grows from one size of
// slices to another.
#pragma once

#include <optional>

#include "base/result.h"
#include "capture/capture.h"

namespace piper {

/// Writes it into all random calls of the bodies. `slices`: the model with at least two sizes of slices.
/// Refused (E603): numbers that grow with the samples, but not by one piece for each.
Checked place_samples(std::vector<CapturedSlice>& slices);

/// What relates every sample of a slice to every other, as contrastive losses do: the first call on the way to the loss
/// whose result has two dimensions of samples.
std::optional<SliceDependence> find_mixed_samples(const CapturedSlice& slice);

}  // namespace piper
