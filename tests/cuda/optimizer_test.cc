// The optimizer on a GPU gives the bits of the one on a processor, for every optimizer and every combination of types.
#include "runtime/cuda/optimizer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "cuda/gpu_memory.h"
#include "optimizer/samples.h"

namespace piper {
namespace {

Bytes random_bytes(DType dtype, int64_t count, unsigned seed, double scale) {
  return bytes_from(dtype, random_numbers(static_cast<size_t>(count), seed, scale));
}

/// Of every third also with a moving average of the weights, and with moments that are rounded at random.
std::vector<ElementTypes> with_means_and_narrow_moments(std::vector<ElementTypes> all) {
  const size_t usual = all.size();
  for (size_t i = 0; i < usual; i += 3) {
    ElementTypes types = all[i];
    types.ema = types.moments;
    all.push_back(types);
    types.random_rounding = bytes_of(types.moments) > bytes_of(DType::BFloat16);
    types.moments = DType::BFloat16;
    all.push_back(types);
  }
  return all;
}

TEST(GpuOptimizer, GivesTheBitsOfTheProcessor) {
  SKIP_WITHOUT_GPU();
  int number = 0;
  for (const Optimizer kind : {Optimizer::Sgd, Optimizer::Momentum, Optimizer::AdamW, Optimizer::Lion})
    for (const ElementTypes& types : with_means_and_narrow_moments(all_types()))
      for (const int64_t count : {1, 1003, 70000}) {
        SCOPED_TRACE(fmt::format("{} weights {} gradients {} moments {} master {} count {}", name(kind),
                                 name(types.weights), name(types.gradients), name(types.moments),
                                 types.master ? name(*types.master) : "none", count));
        OptimizerSettings settings;
        settings.kind = kind;
        const auto seed = static_cast<unsigned>(++number);
        Bytes weights = random_bytes(types.weights, count, seed, 0.1);
        Bytes state(static_cast<size_t>(state_bytes(types, kind, count)), std::byte{0xAB});
        // every other case lies as odd as an array of its type can
        const auto odd = [&](DType dtype) { return number % 2 ? static_cast<size_t>(bytes_of(dtype)) : 0; };
        GpuMemory gpu_weights(weights, odd(types.weights)), gpu_state(state, odd(types.moments));
        initialize_state(types, kind, weights.data(), state.data(), count);
        cuda::initialize_state(types, kind, gpu_weights.at(), gpu_state.at(), count, nullptr);
        for (int64_t step = 1; step <= 3; ++step) {
          const Bytes gradients = random_bytes(types.gradients, count, seed + 1000u * static_cast<unsigned>(step), 3);
          const GpuMemory gpu_gradients(gradients, odd(types.gradients));
          const ElementPart part{count / 3, count, {seed, 5, 7, 14}};
          update(settings, types, step, {0.37, 0.9}, weights.data(), gradients.data(), state.data(), count, part);
          cuda::update(settings, types, step, {0.37, 0.9}, gpu_weights.at(), gpu_gradients.at(), gpu_state.at(), count,
                       part, nullptr);
          ASSERT_TRUE(gpu_weights.read() == weights) << "weights after step " << step;
          ASSERT_TRUE(gpu_state.read() == state) << "state after step " << step;
        }
      }
  EXPECT_GT(number, 100);
}

TEST(GpuOptimizer, SumsSquaresInTheOrderOfTheProcessor) {
  SKIP_WITHOUT_GPU();
  for (const DType dtype : {DType::Float64, DType::Float32, DType::BFloat16})
    for (const int64_t count : {0, 1, 511, 512, 513, 5000, 512 * 1024, 512 * 1025 + 7, 3'000'001}) {
      const Bytes numbers = random_bytes(dtype, count, 7, 1);
      const GpuMemory gpu(numbers, static_cast<size_t>(bytes_of(dtype)));
      const GpuMemory result(Bytes(sizeof(double)));
      const GpuMemory scratch(Bytes(static_cast<size_t>(cuda::sum_of_squares_scratch(count))));
      cuda::sum_of_squares(dtype, gpu.at(), count, reinterpret_cast<double*>(result.at()), scratch.at(), nullptr);
      double sum;
      std::memcpy(&sum, result.read().data(), sizeof(sum));
      EXPECT_EQ(sum, sum_of_squares(dtype, numbers.data(), count)) << name(dtype) << " " << count;
    }
}

}  // namespace
}  // namespace piper
