// Random models: chains and branches, tied and frozen parameters, experts, chunks with and without BI and BW.
#pragma once

#include <string>
#include <vector>

#include "model/model_graph.h"
#include "property/random.h"

namespace piper::property {

/// A model, and what a schedule for it needs to know.
struct RandomModel {
  ModelGraph graph;
  int layers = 0;                // instances of the scope `layer`
  int encoders = 0;              // instances of `encoder`, one input each
  bool has_experts = false;      // some layers have a scope `experts` inside
  bool has_aux = false;          // a value without batch dimension goes from some layer to the head
  bool shares = false;           // some parameter is used by two chunks
  bool splits_backward = false;  // every chunk says how its backward falls into BI and BW
};

/// Experts of every expert dimension: divides by 2 and 4.
constexpr int expert_count = 8;

/// What the model is made of; the rest is random.
struct ModelWish {
  int64_t batch = 16;
  int most_layers = 6;
  int fewest_layers = 2;
  bool splits_backward = false;  // all chunks have BI and BW
  bool aux = true;               // values without a batch dimension are welcome
};
RandomModel random_model(Random& random, const ModelWish& wish);

}  // namespace piper::property
