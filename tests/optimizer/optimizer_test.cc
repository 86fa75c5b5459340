// Weights after a step, against formulas written another way; in every combination of types.
#include "runtime/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ir/local_size.h"
#include "optimizer/samples.h"

namespace piper {
namespace {

std::vector<double> numbers_in(DType dtype, const Bytes& bytes) {
  std::vector<double> out(bytes.size() / static_cast<size_t>(bytes_of(dtype)));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto get = [&](auto x) {
      std::memcpy(&x, bytes.data() + i * sizeof(x), sizeof(x));
      return x;
    };
    if (dtype == DType::Float64) out[i] = get(double{});
    if (dtype == DType::Float32) out[i] = get(float{});
    if (dtype == DType::BFloat16) out[i] = to_float(get(BFloat{}));
  }
  return out;
}

/// A range of elements with everything that belongs to it.
struct Elements {
  OptimizerSettings settings;
  ElementTypes types;
  int64_t count;
  Bytes weights, state;

  Elements(OptimizerSettings s, ElementTypes t, const std::vector<double>& numbers)
      : settings(s), types(t), count(static_cast<int64_t>(numbers.size())), weights(bytes_from(t.weights, numbers)) {
    state.resize(static_cast<size_t>(state_bytes(types, settings.kind, count)), std::byte{0xAB});
    initialize_state(types, settings.kind, weights.data(), state.data(), count);
  }
  void step(int64_t number, const std::vector<double>& gradients, double scale = 1) {
    step(number, gradients, {scale, {}}, {0, count});
  }
  void step(int64_t number, const std::vector<double>& gradients, const GradientScale& scale, ElementPart part) {
    const Bytes g = bytes_from(types.gradients, gradients);
    update(settings, types, number, scale, weights.data(), g.data(), state.data(), count, part);
  }
  std::vector<double> values() const { return numbers_in(types.weights, weights); }
  std::vector<double> part_of_state(DType dtype, int64_t skip) const {
    const auto from = state.begin() + skip;
    return numbers_in(dtype, Bytes(from, from + count * bytes_of(dtype)));
  }
};

ElementTypes all_of(DType dtype) {
  return {dtype, dtype, std::nullopt, dtype == DType::BFloat16 ? DType::Float32 : dtype, std::nullopt};
}

/// The paper's AdamW: corrected moments by name.
struct Reference {
  OptimizerSettings s;
  std::vector<double> w, first, second;

  Reference(OptimizerSettings settings, std::vector<double> weights)
      : s(settings), w(std::move(weights)), first(w.size()), second(w.size()) {}

  void step(int number, const std::vector<double>& gradients) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradients[i];
      if (s.kind == Optimizer::AdamW) {
        first[i] = s.beta1 * first[i] + (1 - s.beta1) * g;
        second[i] = s.beta2 * second[i] + (1 - s.beta2) * g * g;
        const double corrected1 = first[i] / (1 - std::pow(s.beta1, number));
        const double corrected2 = second[i] / (1 - std::pow(s.beta2, number));
        w[i] -= s.learning_rate * (s.weight_decay * w[i] + corrected1 / (std::sqrt(corrected2) + s.epsilon));
      } else if (s.kind == Optimizer::Lion) {
        const double mean = s.beta1 * first[i] + (1 - s.beta1) * g;
        w[i] -= s.learning_rate * (s.weight_decay * w[i] + (mean > 0 ? 1 : mean < 0 ? -1 : 0));
        first[i] = s.beta2 * first[i] + (1 - s.beta2) * g;
      } else {
        const double decayed = g + s.weight_decay * w[i];
        first[i] = s.kind == Optimizer::Momentum && number > 1 ? s.momentum * first[i] + decayed : decayed;
        w[i] -= s.learning_rate * first[i];
      }
    }
  }
};

double largest_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(a[i] - b[i]));
    size = std::max(size, std::abs(b[i]));
  }
  return difference / size;
}

TEST(Optimizer, FirstStepOfAdamWByHand) {
  // both corrected moments are the gradient's own: 2 / (sqrt(4) + 1) = 2/3
  OptimizerSettings settings{.learning_rate = 0.3, .epsilon = 1, .weight_decay = 0.5};
  Elements elements(settings, all_of(DType::Float64), {10});
  elements.step(1, {2});
  EXPECT_DOUBLE_EQ(elements.values()[0], 10 * (1 - 0.15) - 0.3 * 2 / 3);
}

TEST(Optimizer, MomentumByHand) {
  OptimizerSettings settings{.kind = Optimizer::Momentum, .learning_rate = 0.5, .weight_decay = 0.25, .momentum = 0.5};
  Elements elements(settings, all_of(DType::Float32), {8});
  elements.step(1, {2});  // gradient 2 + 2, momentum 4
  EXPECT_EQ(elements.values()[0], 6);
  elements.step(2, {1});  // gradient 1 + 1.5, momentum 2 + 2.5
  EXPECT_EQ(elements.values()[0], 3.75);
  EXPECT_EQ(elements.part_of_state(DType::Float32, 0)[0], 4.5);
}

TEST(Optimizer, NesterovByHand) {
  OptimizerSettings settings{.kind = Optimizer::Momentum, .learning_rate = 0.5, .weight_decay = 0, .momentum = 0.5};
  settings.nesterov = true;
  Elements elements(settings, all_of(DType::Float32), {8});
  elements.step(1, {2});  // momentum 2, ahead 2 + 1
  EXPECT_EQ(elements.values()[0], 6.5);
  elements.step(2, {1});  // momentum 1 + 1, ahead 1 + 1
  EXPECT_EQ(elements.values()[0], 5.5);
}

TEST(Optimizer, LionByHand) {
  OptimizerSettings settings{
      .kind = Optimizer::Lion, .learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.25};
  Elements elements(settings, all_of(DType::Float64), {8, 8, 8});
  elements.step(1, {4, -4, 0});  // decay 1; sign of half the gradient
  EXPECT_EQ(elements.values(), (std::vector<double>{6.5, 7.5, 7}));
  EXPECT_EQ(elements.part_of_state(DType::Float64, 0), (std::vector<double>{1, -1, 0}));
}

TEST(Optimizer, GradientsAreCutOffAfterTheyAreScaled) {
  OptimizerSettings settings{.kind = Optimizer::Sgd, .learning_rate = 1, .weight_decay = 0};
  Elements elements(settings, all_of(DType::Float32), {0, 0, 0, 0});
  elements.step(1, {2, -2, 8, -8}, {0.5, 2.0}, {0, 4});
  EXPECT_EQ(elements.values(), (std::vector<double>{-1, 1, -2, 2}));
}

TEST(Optimizer, ThePartsOfARangeAreTheRange) {
  const std::vector<double> gradients = random_numbers(1000, 2);
  for (const Optimizer kind : {Optimizer::AdamW, Optimizer::Lion}) {
    const ElementTypes types{DType::BFloat16, DType::Float32, DType::Float32, DType::Float32, {}};
    Elements whole({.kind = kind}, types, random_numbers(1000, 1)), parts = whole;
    for (int step = 1; step <= 2; ++step) {
      whole.step(step, gradients);
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 1}, {1, 700}, {700, 1000}})
        parts.step(step, gradients, {1, {}}, {begin, end});
    }
    EXPECT_EQ(parts.weights, whole.weights);
    EXPECT_EQ(parts.state, whole.state);
  }
}

TEST(Optimizer, TheFirstGroupWhosePatternMatchesCounts) {
  const std::vector<ParameterGroup> groups = {{"*.bias", 2, 0.0}, {"layers.*", 0.5, {}}};
  EXPECT_EQ(group_of(groups, "layers.0.bias"), 0u);
  EXPECT_EQ(group_of(groups, "layers.0.weight"), 1u);
  EXPECT_EQ(group_of(groups, "head.weight"), std::nullopt);
  const OptimizerSettings all{.learning_rate = 3, .weight_decay = 0.5};
  EXPECT_EQ(settings_of(all, groups[0]), (OptimizerSettings{.learning_rate = 6, .weight_decay = 0}));
  EXPECT_EQ(settings_of(all, groups[1]), (OptimizerSettings{.learning_rate = 1.5, .weight_decay = 0.5}));
}

TEST(Optimizer, SgdByHand) {
  OptimizerSettings settings{.kind = Optimizer::Sgd, .learning_rate = 0.5, .weight_decay = 0.25};
  Elements elements(settings, all_of(DType::BFloat16), {8});
  elements.step(1, {8}, 0.25);  // gradient 2 + 2
  EXPECT_EQ(elements.values()[0], 6);
  EXPECT_TRUE(elements.state.empty());
}

class OptimizerOfEveryKind : public testing::TestWithParam<Optimizer> {};

TEST_P(OptimizerOfEveryKind, FollowsTheFormula) {
  const OptimizerSettings settings{.kind = GetParam(), .learning_rate = 0.02};
  for (const DType dtype : {DType::Float64, DType::Float32}) {
    Elements elements(settings, all_of(dtype), random_numbers(1537, 1));
    Reference reference(settings, elements.values());
    for (int step = 1; step <= 20; ++step) {
      const auto gradients = numbers_in(dtype, bytes_from(dtype, random_numbers(1537, 1 + step)));
      std::vector<double> scaled = gradients;
      for (double& g : scaled) g *= 0.125;
      elements.step(step, gradients, 0.125);
      reference.step(step, scaled);
    }
    EXPECT_LT(largest_error(elements.values(), reference.w), dtype == DType::Float64 ? 2e-15 : 2e-6);
    if (GetParam() == Optimizer::AdamW) {
      const auto second = elements.part_of_state(dtype, elements.count * bytes_of(dtype));
      EXPECT_LT(largest_error(second, reference.second), dtype == DType::Float64 ? 2e-15 : 1e-6);
    }
  }
}

TEST_P(OptimizerOfEveryKind, PiecesGiveTheBitsOfTheWhole) {
  std::mt19937 random(7);
  for (const ElementTypes& types : all_types()) {
    const size_t count = 1 + random() % 1300, cut = random() % (count + 1);
    const auto numbers = random_numbers(count, 3);
    Elements whole({.kind = GetParam()}, types, numbers);
    Elements left({.kind = GetParam()}, types, {numbers.begin(), numbers.begin() + static_cast<long>(cut)});
    Elements right({.kind = GetParam()}, types, {numbers.begin() + static_cast<long>(cut), numbers.end()});
    for (int step = 1; step <= 3; ++step) {
      const auto gradients = random_numbers(count, 10 + step, 1e-2);
      whole.step(step, gradients, 0.3);
      left.step(step, {gradients.begin(), gradients.begin() + static_cast<long>(cut)}, 0.3);
      right.step(step, {gradients.begin() + static_cast<long>(cut), gradients.end()}, 0.3);
    }
    Bytes joined = left.weights;
    joined.insert(joined.end(), right.weights.begin(), right.weights.end());
    EXPECT_EQ(joined, whole.weights) << count << " cut at " << cut;
    const auto moment = bytes_of(types.moments);
    if (moments(GetParam()) == 2) {
      std::vector<double> second = left.part_of_state(types.moments, left.count * moment);
      const auto rest = right.part_of_state(types.moments, right.count * moment);
      second.insert(second.end(), rest.begin(), rest.end());
      EXPECT_EQ(second, whole.part_of_state(types.moments, whole.count * moment));
    }
  }
}

TEST_P(OptimizerOfEveryKind, NothingBeyondTheRangeIsTouched) {
  for (const ElementTypes& types : all_types()) {
    const int64_t count = 517;
    Elements elements({.kind = GetParam()}, types, random_numbers(count, 3));
    elements.weights.push_back(std::byte{0x5A});
    elements.state.push_back(std::byte{0x5A});
    elements.step(1, random_numbers(count, 4));
    EXPECT_EQ(elements.weights.back(), std::byte{0x5A});
    EXPECT_EQ(elements.state.back(), std::byte{0x5A});
  }
}

TEST_P(OptimizerOfEveryKind, StateIsAsLargeAsThePlanCounts) {
  const std::vector<std::optional<DType>> copies = {{}, DType::Float64, DType::Float32, DType::BFloat16};
  for (const DType weights : {DType::Float64, DType::Float32, DType::BFloat16})
    for (const DType gradients : {DType::Float32, DType::BFloat16})
      for (const auto& master : copies)
        for (const auto& master_gradients : copies) {
          StepConfig step;
          step.weights = DType::BFloat16;  // of the model; single parameters differ
          step.gradients = gradients, step.master = master, step.master_gradients = master_gradients;
          step.optimizer = GetParam();
          EXPECT_EQ(state_bytes(element_types(step, weights), step.optimizer, 11),
                    11 * optimizer_bytes(step, weights, step.optimizer));
        }
}

INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerOfEveryKind,
                         testing::Values(Optimizer::Sgd, Optimizer::Momentum, Optimizer::AdamW, Optimizer::Lion),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(Optimizer, TheMasterCopyRemembersWhatTheWeightsRoundAway) {
  const ElementTypes types{DType::BFloat16, DType::Float32, DType::Float32, DType::Float32, std::nullopt};
  OptimizerSettings settings{.kind = Optimizer::Sgd, .learning_rate = 1, .weight_decay = 0};
  Elements elements(settings, types, {1, -2.5});
  EXPECT_EQ(elements.part_of_state(DType::Float32, 0), (std::vector<double>{1, -2.5}));
  const double tiny = std::ldexp(1, -9);  // a quarter of the distance between neighbours of 1
  for (int step = 1; step <= 4; ++step) {
    elements.step(step, {-tiny, 0});
    EXPECT_EQ(elements.part_of_state(DType::Float32, 0)[0], 1 + step * tiny);
    EXPECT_EQ(elements.values()[0], step < 3 ? 1 : 1 + std::ldexp(1, -7)) << step;
  }
  EXPECT_EQ(elements.values()[1], -2.5);

  Elements forgetful(settings, all_of(DType::BFloat16), {1});
  for (int step = 1; step <= 4; ++step) forgetful.step(step, {-tiny});
  EXPECT_EQ(forgetful.values()[0], 1);
}

TEST(Optimizer, MasterGradientsAreTheScaledGradients) {
  const ElementTypes types{DType::Float32, DType::BFloat16, std::nullopt, DType::Float32, DType::Float32};
  Elements elements({.kind = Optimizer::Momentum}, types, {1, 2, 3});
  elements.step(1, {4, -8, 16}, 0.25);
  EXPECT_EQ(elements.part_of_state(DType::Float32, 3 * 4), (std::vector<double>{1, -2, 4}));
}

TEST(Optimizer, TypesWithoutKernelsAreRefused) {
  ElementTypes types;
  EXPECT_TRUE(check_types(types));
  types.weights = DType::Float16;
  EXPECT_EQ(render(check_types(types).error()),
            "piper: error[E105]: weights of dtype float16 cannot be trained: there is no loss scaler\n"
            "help: small gradients become 0 in float16; bfloat16 has the range of float32 and needs no scaler\n");
  types.weights = DType::Float32;
  types.gradients = DType::Int8;
  EXPECT_FALSE(check_types(types));
  types.gradients = DType::Float32;
  types.master = DType::BFloat16;
  EXPECT_EQ(render(check_types(types).error()),
            "piper: error[E105]: a bfloat16 master copy of float32 weights loses digits\n"
            "help: the master copy must be wider than the weights; without one, write master = \"none\"\n");
}

TEST(Optimizer, NotFiniteGradientsMakeNotFiniteWeights) {
  Elements elements({}, all_of(DType::BFloat16), {1, 1, 1});
  elements.step(1, {NAN, INFINITY, 1});
  const auto values = elements.values();
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_TRUE(std::isnan(values[1]));
  EXPECT_TRUE(std::isfinite(values[2]));
}

TEST(SumOfSquares, IsExactToTheLastDigits) {
  for (const DType dtype : {DType::Float64, DType::Float32, DType::BFloat16})
    for (const size_t count : {0u, 1u, 7u, 512u, 513u, 100'003u}) {
      const Bytes bytes = bytes_from(dtype, random_numbers(count, 5));
      long double expected = 0;
      for (const double x : numbers_in(dtype, bytes)) expected += static_cast<long double>(x) * x;
      const double found = sum_of_squares(dtype, bytes.data(), static_cast<int64_t>(count));
      EXPECT_NEAR(found, static_cast<double>(expected), 1e-15 * static_cast<double>(expected)) << count;
    }
}

TEST(SumOfSquares, OfSmallNumbersBesideLargeOnes) {
  std::vector<double> numbers(1 << 20, 1);
  numbers[0] = std::ldexp(1, 26);  // its square swallows any single 1
  const Bytes bytes = bytes_from(DType::Float32, numbers);
  const double found = sum_of_squares(DType::Float32, bytes.data(), 1 << 20);
  EXPECT_NEAR(found, std::ldexp(1, 52) + (1 << 20) - 1, 256);
}

TEST(SumOfSquares, SaysWhetherAllIsFinite) {
  for (const double wrong : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    std::vector<double> numbers(1000, 1e30);
    EXPECT_TRUE(std::isfinite(sum_of_squares(DType::Float32, bytes_from(DType::Float32, numbers).data(), 1000)));
    numbers[777] = wrong;
    EXPECT_FALSE(std::isfinite(sum_of_squares(DType::BFloat16, bytes_from(DType::BFloat16, numbers).data(), 1000)));
  }
}

}  // namespace
}  // namespace piper
