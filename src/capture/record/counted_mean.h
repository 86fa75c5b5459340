// Losses that are means over what is counted: tokens that are not padding, elements of a mask.
//
// The mean of a batch is then not the mean of the means of its slices, because slices count differently. What is
// trained is the latter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "capture/record/operator_graph.h"

namespace piper {

struct CountedMean {
  std::string op;     // that divides
  std::string scope;  // where
  /// What is not counted are labels with this number, which PyTorch's losses leave out unless told otherwise: a mean
  /// like any other where no label is it.
  std::optional<int64_t> left_out;
};

/// In a recorded step: what the loss divides by, if it is one number that depends on the numbers of the batch.
std::vector<CountedMean> find_counted_means(const OperatorGraph& graph);

}  // namespace piper
