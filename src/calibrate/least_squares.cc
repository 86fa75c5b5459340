#include "calibrate/least_squares.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace piper {
namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

/// x in a x = b by Gauss's elimination; nothing if a is singular.
std::optional<Vector> solve(Matrix a, Vector b) {
  const size_t n = b.size();
  for (size_t column = 0; column < n; ++column) {
    size_t pivot = column;
    for (size_t row = column; row < n; ++row)
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    if (std::abs(a[pivot][column]) < 1e-300) return std::nullopt;
    std::swap(a[pivot], a[column]);
    std::swap(b[pivot], b[column]);
    for (size_t row = column + 1; row < n; ++row) {
      const double factor = a[row][column] / a[column][column];
      for (size_t k = column; k < n; ++k) a[row][k] -= factor * a[column][k];
      b[row] -= factor * b[column];
    }
  }
  for (size_t row = n; row-- > 0;) {
    for (size_t k = row + 1; k < n; ++k) b[row] -= a[row][k] * b[k];
    b[row] /= a[row][row];
  }
  return b;
}

/// The sum's gradient and (approximate) second derivatives at a point.
struct Model {
  Vector gradient;
  Matrix curvature;
};

Model model_at(const Residuals& residuals, const Vector& at, const Vector& here, double scale) {
  constexpr double difference = 1e-4;
  const size_t n = at.size();
  Matrix slopes;
  for (size_t p = 0; p < n; ++p) {
    Vector moved = at;
    const double by = at[p] + difference <= 1 ? difference : -difference;
    moved[p] += by;
    Vector there = residuals(moved);
    for (size_t i = 0; i < there.size(); ++i) there[i] = (there[i] - here[i]) / by;
    slopes.push_back(std::move(there));
  }
  Model out{Vector(n, 0), Matrix(n, Vector(n, 0))};
  for (size_t i = 0; i < here.size(); ++i) {
    const double weight = 1 / std::sqrt(1 + here[i] * here[i] / (scale * scale));
    for (size_t p = 0; p < n; ++p) {
      out.gradient[p] += weight * slopes[p][i] * here[i];
      for (size_t q = 0; q < n; ++q) out.curvature[p][q] += weight * slopes[p][i] * slopes[q][i];
    }
  }
  return out;
}

/// A step down, inside of the bounds: a coordinate at its bound that wants out stays.
std::optional<Vector> step_from(const Vector& at, const Model& model, double damping) {
  Matrix a = model.curvature;
  Vector b(at.size());
  for (size_t p = 0; p < at.size(); ++p) {
    b[p] = -model.gradient[p];
    const bool held = model.curvature[p][p] <= 0 || (at[p] <= 0 && b[p] < 0) || (at[p] >= 1 && b[p] > 0);
    if (!held) {
      a[p][p] *= 1 + damping;
      continue;
    }
    for (size_t q = 0; q < at.size(); ++q) a[p][q] = a[q][p] = p == q ? 1 : 0;
    b[p] = 0;
  }
  std::optional<Vector> step = solve(std::move(a), std::move(b));
  if (!step) return std::nullopt;
  for (size_t p = 0; p < at.size(); ++p) (*step)[p] = std::clamp(at[p] + (*step)[p], 0.0, 1.0);
  return step;
}

}  // namespace

double robust_sum(const Vector& residuals, double scale) {
  double sum = 0;
  for (const double r : residuals) sum += std::sqrt(1 + r * r / (scale * scale)) - 1;
  return sum;
}

Vector least_squares(const Residuals& residuals, Vector at, double scale) {
  constexpr int most_steps = 200;
  constexpr double enough = 1e-7;  // relative change of the sum
  Vector here = residuals(at);
  double sum = robust_sum(here, scale), damping = 1e-2;
  for (int step = 0; step < most_steps; ++step) {
    const Model model = model_at(residuals, at, here, scale);
    bool better = false;
    double gained = 0;
    while (!better && damping < 1e9) {
      if (const std::optional<Vector> next = step_from(at, model, damping)) {
        Vector there = residuals(*next);
        if (const double then = robust_sum(there, scale); then < sum) {
          better = true;
          gained = sum - then;
          at = *next;
          here = std::move(there);
          sum = then;
        }
      }
      damping *= better ? 0.3 : 4;
    }
    if (!better || gained < enough * sum) break;
  }
  return at;
}

}  // namespace piper
