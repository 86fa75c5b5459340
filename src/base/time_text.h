// Durations as people read them.
#pragma once

#include <string>

namespace piper {

/// `12.3 us`, `4.56 ms`, `1.23 s`, with three digits that matter.
std::string human_seconds(double seconds);

}  // namespace piper
