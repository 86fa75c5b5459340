// Durations as people read them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace piper {

/// `12.3 us`, `4.56 ms`, `1.23 s`, with three digits that matter.
std::string human_seconds(double seconds);

/// Seconds in a unit of time that users write: s, min, h, d. Nothing: it is none of them.
std::optional<double> seconds_in(std::string_view unit);

}  // namespace piper
