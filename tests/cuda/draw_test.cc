// Random numbers on a GPU are those of their places, one by one.
#include "runtime/cuda/draw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "cuda/gpu_memory.h"

namespace piper {
namespace {

constexpr uint64_t key = 0x123456789abcdef;
const std::vector<uint64_t> words = {key, 40, 7, uint64_t{1} << 40};  // and first samples of three slices

/// What the definition says of one number.
double drawn(const Drawing& drawing, int digits, int64_t sample, int64_t element) {
  const int each = words_of(drawing.kind, digits);
  const int64_t word = element * each, block = word / 4;
  uint32_t block_words[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                             static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)};
  philox(PhiloxKey(key), block_words);
  const uint32_t* const own = block_words + word % 4;
  if (drawing.kind == Distribution::Bernoulli) return own[0] < bernoulli_chance(drawing.a) ? 1 : 0;
  return drawn_number(drawing, digits, own[0], each == 2 ? own[1] : 0);
}

/// Calls f(memory, sample, element) for every number of a place.
template <class F>
void each_number(const DrawPlace& place, F f, size_t d = 0, DrawDim at = {0, 0, 0, 0, 0}) {
  if (d == place.dims.size())
    return f(at.memory, static_cast<int64_t>(words[1 + static_cast<size_t>(at.slice)]) + at.sample,
             place.start + at.element);
  const DrawDim& dim = place.dims[d];
  for (int64_t i = 0; i < dim.size; ++i)
    each_number(place, f, d + 1,
                {0, at.memory + i * dim.memory, at.element + i * dim.element, at.sample + i * dim.sample,
                 at.slice + i * dim.slice});
}

std::vector<DrawPlace> places() {
  return {
      {0, {{1000, 1, 1, 0, 0}}, {}},
      {3, {{1001, 1, 1, 0, 0}}, {}},                                      // in the midst of a block
      {0, {{5, 64, 0, 1, 0}, {64, 1, 1, 0, 0}}, {}},                      // samples
      {14, {{3, 70, 0, 1, 0}, {5, 14, 28, 0, 0}, {14, 1, 1, 0, 0}}, {}},  // the second half of a dimension
      {6, {{3, 1, 0, 0, 1}, {2, 3, 0, 1, 0}, {9, 6, 1, 0, 0}}, {}},       // several slices, turned
      {5, {{7, 1, 3, 0, 0}, {1, 1, 1, 0, 0}}, {}},                        // runs of one
  };
}

template <class T>
void check(DType dtype, const Drawing& drawing, bool there, double tolerance) {
  for (const DrawPlace& place : places()) {
    int64_t count = 0;
    each_number(place, [&](int64_t memory, int64_t, int64_t) { count = std::max(count, memory + 1); });
    const GpuMemory into(std::vector<std::byte>(static_cast<size_t>(count) * sizeof(T)));
    std::vector<std::byte> raw(words.size() * sizeof(uint64_t));
    std::memcpy(raw.data(), words.data(), raw.size());
    const GpuMemory on_gpu(raw);
    cuda::draw(drawing, dtype, into.at(), place,
               there ? cuda::DrawWords{{}, reinterpret_cast<const uint64_t*>(on_gpu.at())} : cuda::DrawWords{words},
               nullptr);
    const std::vector<std::byte> read = into.read();
    each_number(place, [&](int64_t memory, int64_t sample, int64_t element) {
      T seen;
      std::memcpy(&seen, read.data() + memory * static_cast<int64_t>(sizeof(T)), sizeof(T));
      const double expected = drawn(drawing, digits_of(dtype), sample, element);
      EXPECT_NEAR(static_cast<double>(seen), static_cast<double>(static_cast<T>(expected)), tolerance) << element;
    });
  }
}

TEST(CudaDraw, IsThatOfTheProcessor) {
  SKIP_WITHOUT_GPU();
  for (const bool there : {false, true}) {
    check<float>(DType::Float32, {Distribution::Bernoulli, 0.7, 1}, there, 0);
    check<bool>(DType::Bool, {Distribution::Bernoulli, 0.2, 1}, there, 0);
    check<double>(DType::Float64, {Distribution::Uniform, 0, 1}, there, 0);
    check<float>(DType::Float32, {Distribution::Uniform, 0, 1}, there, 0);
    check<int64_t>(DType::Int64, {Distribution::Integer, -5, 100}, there, 0);
    check<double>(DType::Float64, {Distribution::Normal, 1, 2}, there, 1e-13);
    check<float>(DType::Float32, {Distribution::Exponential, 2, 0}, there, 1e-6);
  }
}

}  // namespace
}  // namespace piper
