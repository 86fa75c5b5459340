// The fit itself, on functions whose least values are known.
#include "calibrate/least_squares.h"

#include <gtest/gtest.h>

#include <cmath>

namespace piper {
namespace {

using Vector = std::vector<double>;

TEST(LeastSquares, FindsTheBottomOfACurvedValley) {
  const auto rosenbrock = [](const Vector& at) {
    const double x = 4 * at[0] - 2, y = 4 * at[1] - 1;
    return Vector{10 * (y - x * x), 1 - x};
  };
  const Vector found = least_squares(rosenbrock, {0.2, 0.5}, 1);
  EXPECT_NEAR(4 * found[0] - 2, 1, 1e-3);
  EXPECT_NEAR(4 * found[1] - 1, 1, 2e-3);
}

TEST(LeastSquares, StaysInsideItsBounds) {
  const auto far = [](const Vector& at) { return Vector{at[0] - 3, at[1] + at[0] - 1.25}; };
  const Vector found = least_squares(far, {0.5, 0.5}, 1);
  EXPECT_DOUBLE_EQ(found[0], 1);
  EXPECT_NEAR(found[1], 0.25, 1e-6) << "the other goes on beside the bound";
}

TEST(LeastSquares, AnOutlierCountsLittle) {
  const auto points = [](const Vector& at) {
    Vector out;
    for (const double y : {0.30, 0.31, 0.29, 0.30, 0.95}) out.push_back(at[0] - y);
    return out;
  };
  EXPECT_NEAR(least_squares(points, {0.9}, 0.01)[0], 0.30, 0.01);
  EXPECT_NEAR(least_squares(points, {0.9}, 100)[0], 0.43, 0.01) << "the mean, where none is one";
}

TEST(LeastSquares, WhatChangesNothingStays) {
  const auto one = [](const Vector& at) { return Vector{at[0] - 0.25}; };
  const Vector found = least_squares(one, {0.9, 0.7}, 1);
  EXPECT_NEAR(found[0], 0.25, 1e-6);
  EXPECT_DOUBLE_EQ(found[1], 0.7);
}

}  // namespace
}  // namespace piper
