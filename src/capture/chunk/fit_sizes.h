// Sizes as functions of the number of samples, from what was seen with some numbers of samples.
#pragma once

#include <optional>
#include <vector>

#include "model/size.h"

namespace piper {

struct Seen {
  int64_t samples = 0;
  int64_t size = 0;
};

/// A dimension that has exactly the sizes that were seen, fixed if possible, with the smallest divisor.
std::optional<Dim> fit_dim(const std::vector<Seen>& seen);

/// An amount that is exact at the first `exact` points if a line through them has whole coefficients; otherwise the
/// least line that is nowhere below them. The other points only say how it grows.
Amount fit_amount(const std::vector<Seen>& seen, size_t exact);

}  // namespace piper
