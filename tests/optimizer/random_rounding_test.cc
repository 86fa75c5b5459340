// Moments in bfloat16: right in the mean, and the same whoever updates an element.
#include "runtime/optimizer/random_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "optimizer/samples.h"

namespace piper {
namespace {

ElementTypes narrow_moments(DType weights = DType::Float32) {
  StepConfig step;
  step.weights = weights;
  step.gradients = weights;
  step.moments = DType::BFloat16;
  return element_types(step, weights);
}

/// A parameter of which a device updates some elements.
struct Updated {
  ElementTypes types = narrow_moments();
  OptimizerSettings settings;
  int64_t count;
  Bytes weights, state;

  explicit Updated(const std::vector<double>& numbers) : count(static_cast<int64_t>(numbers.size())) {
    weights = bytes_from(types.weights, numbers);
    state.resize(static_cast<size_t>(state_bytes(types, settings.kind, count)));
    initialize_state(types, settings.kind, weights.data(), state.data(), count);
  }
  void step(int64_t number, const std::vector<double>& gradients, const RoundedElements& elements) {
    const Bytes g = bytes_from(types.gradients, gradients);
    update(settings, types, number, {}, weights.data(), g.data(), state.data(), count, {0, count, elements});
  }
  double moment(int which, int64_t element) const {
    BFloat x;
    std::memcpy(&x, state.data() + (which * count + element) * 2, sizeof(x));
    return to_float(x);
  }
};

/// Those that a device has.
std::vector<double> picked(const std::vector<double>& whole, const RoundedElements& elements, int64_t count) {
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(whole[static_cast<size_t>(elements[i])]);
  return out;
}

TEST(RandomRounding, IsRightInTheMeanOfAllBits) {
  for (const double number : random_numbers(20, 1)) {
    const auto x = static_cast<float>(number);
    double sum = 0;
    float least = INFINITY, most = -INFINITY;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const float rounded = to_bfloat_at_random(x, 0xABCD0000u | bits);  // the upper half is for somebody else
      EXPECT_EQ(to_float(to_bfloat(rounded)), rounded);
      sum += rounded;
      least = std::min(least, rounded), most = std::max(most, rounded);
    }
    EXPECT_EQ(sum / 0x10000, x);
    EXPECT_LE(least, x);
    EXPECT_GE(most, x);
  }
  EXPECT_EQ(to_bfloat_at_random(-2.5f, 0xFFFF), -2.5f);  // a bfloat16 stays
  EXPECT_EQ(to_bfloat_at_random(0, 0xFFFF), 0);
  EXPECT_EQ(to_bfloat_at_random(INFINITY, 0xFFFF), INFINITY);
  EXPECT_TRUE(std::isnan(to_bfloat_at_random(std::bit_cast<float>(0x7F80FFFFu), 0xFFFF)));
}

TEST(RandomRounding, SmallAdditionsCount) {
  // the second moment comes near 1 by a thousandth of what is left in each step: less than half of a last digit
  constexpr int64_t count = 4096;
  constexpr int steps = 400;
  const std::vector<double> ones(count, 1);
  Updated random(ones), nearest(ones);
  random.settings.beta2 = nearest.settings.beta2 = 0.999;
  nearest.types.random_rounding = false;
  for (int step = 1; step <= steps; ++step) {
    random.step(step, ones, {17});
    nearest.step(step, ones, {});
  }
  double mean = 0;
  for (int64_t i = 0; i < count; ++i) mean += random.moment(1, i) / count;
  const double exact = 1 - std::pow(0.999, steps);
  EXPECT_NEAR(mean, exact, 0.003 * exact);
  EXPECT_GT(std::abs(nearest.moment(1, 0) - exact), 0.1 * exact);
}

TEST(RandomRounding, WhoeverUpdatesAnElementDrawsTheSame) {
  constexpr int64_t rows = 37, columns = 24, count = rows * columns;
  const auto numbers = random_numbers(count, 3);
  const std::vector<RoundedElements> parts = {{5, 0}, {5, 0}, {5, 301}, {5, 0, 12, 24}, {5, 12, 12, 24}, {6, 0}};
  const std::vector<int64_t> counts = {count, 301, count - 301, count / 2, count / 2, count};
  std::vector<Updated> updated;
  for (size_t p = 0; p < parts.size(); ++p) updated.emplace_back(picked(numbers, parts[p], counts[p]));
  Updated local(picked(numbers, parts[2], counts[2]));  // counts its own elements: what must not be
  for (int step = 1; step <= 3; ++step) {
    const auto gradients = random_numbers(count, 10 + step);
    for (size_t p = 0; p < parts.size(); ++p) updated[p].step(step, picked(gradients, parts[p], counts[p]), parts[p]);
    local.step(step, picked(gradients, parts[2], counts[2]), {5, 0});
  }
  const auto differences = [&](const Updated& one, const RoundedElements& elements) {
    int out = 0;
    for (int64_t i = 0; i < one.count; ++i)
      for (const int moment : {0, 1}) out += one.moment(moment, i) != updated[0].moment(moment, elements[i]);
    return out;
  };
  for (size_t p = 1; p < parts.size() - 1; ++p) EXPECT_EQ(differences(updated[p], parts[p]), 0) << p;
  EXPECT_GT(differences(updated.back(), parts.back()), 100);  // another key
  EXPECT_GT(differences(local, parts[2]), 100);
}

TEST(RandomRounding, EveryUpdateDrawsAnew) {
  uint32_t one[8], other[8], moved[8];
  random_words({9}, 1, 0, 8, one);
  random_words({9}, 2, 0, 8, other);
  random_words({9, 3}, 1, 0, 5, moved);
  int equal = 0;
  for (int i = 0; i < 8; ++i) equal += one[i] == other[i];
  EXPECT_EQ(equal, 0);
  EXPECT_TRUE(std::equal(moved, moved + 5, one + 3));
}

TEST(RandomRounding, TypesOfMoments) {
  EXPECT_EQ(narrow_moments().moments, DType::BFloat16);
  EXPECT_TRUE(narrow_moments().random_rounding);
  EXPECT_EQ(narrow_moments().arithmetic(), DType::Float32);
  EXPECT_EQ(narrow_moments(DType::Float64).arithmetic(), DType::Float64);
  StepConfig step;
  step.moments = DType::BFloat16;
  step.weights = DType::Float32;
  EXPECT_EQ(state_bytes(element_types(step, DType::Float32), Optimizer::AdamW, 5), 5 * 4);
  EXPECT_TRUE(check_moments(step));
  step.ema = true;  // not narrower for that
  EXPECT_EQ(element_types(step, DType::Float32).ema, DType::Float32);
  step.optimizer = Optimizer::Muon;
  EXPECT_EQ(check_moments(step).error().code, ErrorCode::E105);
  step.optimizer = Optimizer::AdamW;
  step.moments = DType::Float32;
  EXPECT_EQ(check_moments(step).error().code, ErrorCode::E105);
}

}  // namespace
}  // namespace piper
