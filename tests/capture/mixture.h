// A layer of experts, written in many ways: some can be sharded, the others must be refused.
#pragma once

#include <string>
#include <vector>

#include "capture/capture.h"

namespace piper::mixture {

struct Sizes {
  int64_t tokens = 24, dim = 6, hidden = 10, experts = 8, top_k = 2, vocabulary = 11, layers = 1;
  double capacity = 1.25;
};

/// `refused`: a part of the message, or nothing for what is accepted.
struct Formulation {
  std::string name;
  std::string refused;
};
void PrintTo(const Formulation& formulation, std::ostream* out);

std::vector<Formulation> accepted();
std::vector<Formulation> refused();

/// float64; the layers share their weights.
MetaModel make(const std::string& formulation, const Sizes& sizes);
CapturedModel captured(const std::string& formulation, const Sizes& sizes);
/// A sample is a row of `tokens` tokens.
std::vector<at::Tensor> batch(const Sizes& sizes, int64_t samples);

}  // namespace piper::mixture
