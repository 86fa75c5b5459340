// Random cases that should be legal, or nearly so.
#pragma once

#include "property/random.h"
#include "random/case.h"

namespace piper::random {

/// A small model of any architecture that can be trained, and a schedule: along the axes of a mesh, or on lists of
/// devices. One in ten has a mistake: a number changed, a line lost, an argument lost.
Case random_case(uint64_t seed);

}  // namespace piper::random
