// Waiting for a moment, for whatever stands in for something that takes time.
#pragma once

#include <chrono>

namespace piper {

/// Asleep until shortly before, and then awake, so that it does not end late.
void sleep_exactly(std::chrono::steady_clock::time_point until);

}  // namespace piper
