// Robust least squares with bounds, for a handful of parameters.
#pragma once

#include <functional>
#include <vector>

namespace piper {

/// Residuals at a point; any number of them, always the same number.
using Residuals = std::function<std::vector<double>(const std::vector<double>&)>;

/// Minimises the sum of sqrt(1 + (r / scale)^2) over all coordinates in [0, 1], from `start`: residuals far above
/// `scale` count by their size, not its square. Levenberg and Marquardt's method, with differences as derivatives; a
/// coordinate that changes nothing stays where it is. The same input gives the same result.
std::vector<double> least_squares(const Residuals& residuals, std::vector<double> start, double scale);

/// The sum that is minimised.
double robust_sum(const std::vector<double>& residuals, double scale);

}  // namespace piper
