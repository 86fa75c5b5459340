// What `piper check` says about a case.
#pragma once

#include "base/result.h"
#include "random/case.h"

namespace piper::random {

Checked checked(const Case& c);

}  // namespace piper::random
