// Small models of all architectures that can be trained, by their configurations.
#pragma once

#include <string>
#include <vector>

#include "property/random.h"

namespace piper::random {

struct SmallModel {
  std::vector<std::string> lines;  // of [model], without `layers`
  bool experts = false;
  bool dropless = false;  // their rows are sorted
  bool tied = false;
  bool branches = false;  // two encoders beside each other
};

SmallModel random_small_model(property::Random& random);

}  // namespace piper::random
