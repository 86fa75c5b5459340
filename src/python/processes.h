// The processes that this one trains together with.
#pragma once

#include "comm/world.h"

namespace piper::python {

/// None until the package joins them, and after it has left.
World* processes();

}  // namespace piper::python
