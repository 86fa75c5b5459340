// How long something may take before it counts as stalled.
#pragma once

#include <algorithm>

namespace piper {

/// Limit of something that is expected to take so many seconds: least + factor x seconds.
struct Timeouts {
  double least = 10;
  double factor = 10;
  double first = 300;  // at least this, for what has not ended before

  double limit(double longest, double predicted) const {
    const double expected = least + factor * std::max(longest, predicted);
    return longest > 0 ? expected : std::max(first, expected);
  }
};
/// Of users who say one number: the least.
inline Timeouts timeouts_of(double least) {
  return {.least = least, .first = 30 * least};
}

}  // namespace piper
