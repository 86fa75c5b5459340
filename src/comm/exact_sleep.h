// Waiting for a moment, for whatever stands in for something that takes time.
#pragma once

#include <chrono>

namespace piper {

/// Without the slack that the system otherwise allows itself (50 us on Linux).
void sleep_exactly(std::chrono::steady_clock::time_point until);

}  // namespace piper
