// Configurations of the tests, as users write them.
#pragma once

#include <string>

#include "models/build_model.h"

namespace piper {

/// Throws what is refused.
TrainableModel built(const std::string& config, BuildOn on, uint64_t seed = 1, c10::Device target = c10::kCPU);

/// The sizes with published losses: tiny, S, M, MoE-S.
struct ReferenceSize {
  std::string name;
  int layers, hidden, heads, vocabulary, sequence, batch, microbatches, experts;
  std::string config() const;
};
ReferenceSize reference_size(const std::string& name);

}  // namespace piper
