// Random calls: which there are, and how the numbers of each follow from their places in the batch of the whole step.
//
// A number depends on the seed of the step, on the call, on its sample, and on its index inside the sample: in the
// tensor as one device would make it of the whole batch, row by row. So every slice, part and repetition draws the
// same (runtime/random/draw_place.h). Numbers that do not grow with the samples belong to all of them. Where a slice
// arranges its tokens anew, in slots of experts, the place is one of the slice, which goes by the number of its first
// sample.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "capture/record/operator_table.h"
#include "runtime/random/distribution.h"

namespace piper {

/// What the random numbers of a slice depend on, besides the operator: never where or when it runs.
struct RandomKey {
  uint64_t step_seed = 0;
  int64_t first_sample = 0;  // of the slice, in the batch of the whole step
  /// In a region that is divided among devices: the slices whose slots are here, by their first sample, in the order of
  /// the group. None: only this slice.
  std::vector<int64_t> gathered_samples = {};
};

/// What is drawn by a call of an operator.
struct DrawnBy {
  Drawing drawing;
  int probabilities = -1;  // the argument that has them, where they are a tensor
};
/// None: it draws numbers that depend on each other, or on other tensors.
std::optional<DrawnBy> drawn_by(const c10::OperatorHandle& op, const std::vector<Argument>& arguments);
/// For people: operators that are drawn so.
std::string drawn_operators();

/// Adds the labels of a region to what is known of a draw; false if they divide what cannot be.
bool refine(Drawn& drawn, const TensorLabels& labels);

/// Where a device draws its part, in a view with a dimension for every factor.
struct DrawSite {
  std::vector<int64_t> sizes, steps;  // as draw_into wants them
  int64_t start = 0;
  bool gathers = false, shared = false;  // slots of several slices; by all samples
  int random = -1;

  DrawSite(int random_call, const Drawn& drawn, const LocalShards& shards);
  /// The key, and the first sample of every slice that is seen there.
  void add_words(const RandomKey& random, std::vector<uint64_t>& words) const;
};

/// What a call draws of a slice into [samples * n, ...], or by slots of the slice into whatever (no samples): for
/// comparisons with eager PyTorch.
void draw_of_slice(const at::Tensor& into, const Drawing& drawing, int random_call, const RandomKey& random,
                   int64_t samples);

}  // namespace piper
