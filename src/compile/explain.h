// Why a node is in the DAG, what made it, what it waits for and what waits for it.
#pragma once

#include <string>

#include "base/result.h"
#include "compile/compile.h"

namespace piper {

/// `which` is the name of a node, or a filter that selects some. E203 with the nearest names if there is none.
Result<std::string> explain(const Compiled& compiled, const std::string& which);

}  // namespace piper
