// What --routing says.
#pragma once

#include <string>

#include "sim/routing.h"

namespace piper {

/// As parse_routing, or `trace:FILE`: the loads of experts in a file of metrics, of all its steps and layers (E111: it
/// has none).
Result<Routing> read_routing(const std::string& text);

}  // namespace piper
