// Random schedules that should be legal for a random model, in the text form a user would write.
#pragma once

#include <string>

#include "property/random_model.h"

namespace piper::property {

/// A model and a schedule for it.
struct Scenario {
  RandomModel model;
  std::string schedule;
};

/// One of: stages along an axis of a mesh, with or without a library timeline; explicit lists of devices, of equal or
/// different size, with or without orders written by hand.
Scenario random_scenario(Random& random);

}  // namespace piper::property
