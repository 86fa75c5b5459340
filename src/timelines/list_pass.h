// One list-scheduling pass: every rank that is free takes the most urgent pass that is ready.
#pragma once

#include <limits>

#include "timelines/list_problem.h"

namespace piper::timelines {

/// What is urgent. Times in units of the work per microbatch of the busiest rank.
struct ListWeights {
  double depth = 0;       // how much a pass far from the start of its microbatch loses
  double weight_fit = 0;  // by how much of itself a W may delay the next arrival
  double input_lead = 0;  // how much I goes before F, in microbatches
  /// How many microbatches may enter at once; the others follow at the pace of the busiest rank. It spreads the
  /// activations over the ranks where memory is short.
  double at_once = std::numeric_limits<double>::infinity();
};

/// The order of one pass. Never stuck, because a rank keeps room for the oldest microbatch.
ListOrder list_pass(const ListPasses& passes, const ListWeights& weights);

}  // namespace piper::timelines
