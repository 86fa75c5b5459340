// The smallest case with the same fault that small changes lead to.
#pragma once

#include "random/judge.h"

namespace piper::random {

/// Drops directives, layers and arguments and makes numbers smaller, as long as the fault stays; judges at most so many
/// cases.
Case shrink(Case c, const std::string& fault, int tries);

}  // namespace piper::random
