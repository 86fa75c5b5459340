#include "capture/chunk/fit_sizes.h"

#include <gtest/gtest.h>

namespace piper {
namespace {

TEST(FitDim, FixedProportionalRoundedUp) {
  EXPECT_EQ(fit_dim({{1, 16}, {2, 16}}), (Dim{16, false, 1, ""}));
  EXPECT_EQ(fit_dim({{2, 32}, {4, 64}}), (Dim{16, true, 1, ""}));
  const auto capacity = fit_dim({{1, 3}, {2, 5}, {3, 8}, {4, 10}});  // ceil(5 * b / 2)
  ASSERT_TRUE(capacity);
  EXPECT_EQ(capacity->extent(1), 3);
  EXPECT_EQ(capacity->extent(2), 5);
  EXPECT_EQ(capacity->extent(3), 8);
  EXPECT_EQ(capacity->extent(4), 10);
  EXPECT_EQ(capacity->divisor, 2);
}

TEST(FitDim, SquaresAndConstantsBesidesAreNotOfThatForm) {
  EXPECT_FALSE(fit_dim({{2, 4}, {3, 9}, {4, 16}}));
  EXPECT_FALSE(fit_dim({{2, 129}, {200, 300}}));
}

TEST(FitAmount, ExactWhereItIsAsked) {
  EXPECT_EQ(fit_amount({{2, 30}, {4, 50}}, 2), (Amount{10, 10}));
  EXPECT_EQ(fit_amount({{2, 30}, {4, 50}}, 1), (Amount{10, 10}));
  EXPECT_EQ(fit_amount({{4, 10}, {8, 100}}, 1).at(4), 10);
  EXPECT_EQ(fit_amount({{4, 10}}, 1), (Amount{10, 0}));
}

TEST(FitAmount, NeverTooSmall) {
  const std::vector<Seen> seen = {{1, 7}, {3, 12}, {4, 40}};
  const Amount amount = fit_amount(seen, 3);
  for (const Seen& one : seen) EXPECT_GE(amount.at(one.samples), one.size);
}

}  // namespace
}  // namespace piper
