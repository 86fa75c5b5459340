// What `piper check` says about a case.
#pragma once

#include <optional>

#include "base/result.h"
#include "random/case.h"

namespace piper::random {

/// Nothing: the model has no analytic form, so it cannot be checked without training.
std::optional<Checked> checked(const Case& c);

}  // namespace piper::random
