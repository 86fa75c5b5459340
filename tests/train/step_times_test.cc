#include "train/step_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace piper {
namespace {

StepTimes of(std::initializer_list<double> steps) {
  StepTimes times;
  for (double seconds : steps) times.add(seconds);
  return times;
}

TEST(StepTimes, MedianWithoutTheFirstStep) {
  EXPECT_EQ(of({}).median(), std::nullopt);
  EXPECT_TRUE(of({}).empty());
  EXPECT_EQ(of({7}).median(), 7);
  EXPECT_EQ(of({7, 1}).median(), 1);
  EXPECT_EQ(of({7, 1, 2}).median(), 1.5);
  EXPECT_EQ(of({7, 3, 1, 2}).median(), 2);
}

TEST(StepTimes, OldStepsMakeRoomForNewOnes) {
  StepTimes times;
  for (size_t step = 0; step < 3 * StepTimes::most; ++step) times.add(1);
  EXPECT_EQ(times.median(), 1);
  for (size_t step = 0; step < StepTimes::most / 2; ++step) times.add(2);
  EXPECT_EQ(times.median(), 1.5);
  times.add(2);
  EXPECT_EQ(times.median(), 2);
}

TEST(PrintPrediction, OfTheMedian) {
  EXPECT_EQ(print_prediction(of({9, 0.011, 0.0125, 0.5}), 0.01),
            "a step takes 12.5 ms (median), 10.0 ms by prediction: 25.0 % longer than predicted\n");
  EXPECT_EQ(print_prediction(of({9, 1, 3}), 4),
            "a step takes 2.00 s (median), 4.00 s by prediction: 50.0 % shorter than predicted\n");
  EXPECT_EQ(print_prediction(of({1}), 1),
            "a step takes 1.00 s (median), 1.00 s by prediction: 0.0 % longer than predicted\n");
  EXPECT_EQ(print_prediction(of({1, 1}), std::nullopt), "");
  EXPECT_EQ(print_prediction(of({}), 1), "");
}

}  // namespace
}  // namespace piper
