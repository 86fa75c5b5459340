// The processes that this one trains together with.
#pragma once

#include <memory>

#include "comm/world.h"

namespace piper::python {

/// None until the package joins them, and after it has left. Whoever uses it shares it: it ends with the last of them.
std::shared_ptr<World> processes();

}  // namespace piper::python
