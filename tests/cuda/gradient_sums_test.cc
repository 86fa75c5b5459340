#include "runtime/cuda/gradient_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "cuda/elements.h"

namespace piper {
namespace {

template <class T>
std::vector<T> numbers(int64_t count, int seed) {
  std::vector<T> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(narrowed<T>(std::sin(static_cast<float>(i * 7 + seed))));
  }
  return out;
}

template <class To, class From>
void check_rows(DType to, DType from, int64_t rows, int64_t columns) {
  SCOPED_TRACE(testing::Message() << rows << " x " << columns);
  const std::vector<To> before = numbers<To>(columns, 1);
  const std::vector<From> all = numbers<From>(rows * columns, 2);
  const GpuMemory sum(bytes(before)), given(bytes(all));
  const GpuMemory scratch(
      std::vector<std::byte>(static_cast<size_t>(cuda::add_sum_of_rows_scratch(to, rows, columns))));
  cuda::add_sum_of_rows(to, from, sum.at(), given.at(), rows, columns, scratch.at(), nullptr);
  const std::vector<To> after = read<To>(sum);
  for (int64_t c = 0; c < columns; ++c) {
    double expected = wide(before[static_cast<size_t>(c)]);
    for (int64_t r = 0; r < rows; ++r) expected += wide(all[static_cast<size_t>(r * columns + c)]);
    ASSERT_NEAR(wide(after[static_cast<size_t>(c)]), expected, to == DType::Float64 ? 1e-11 : 1e-3) << "column " << c;
  }
}

TEST(GradientSums, SumsOfRows) {
  SKIP_WITHOUT_GPU();
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{1, 1}, {7, 33}, {256, 256}, {257, 64}, {4096, 100}};
  for (const auto& [rows, columns] : sizes) {
    check_rows<float, BFloat>(DType::Float32, DType::BFloat16, rows, columns);
    check_rows<float, float>(DType::Float32, DType::Float32, rows, columns);
    check_rows<double, double>(DType::Float64, DType::Float64, rows, columns);
  }
}

TEST(GradientSums, ManyAtOnce) {
  SKIP_WITHOUT_GPU();
  constexpr int many = 70;  // more than a kernel takes
  std::vector<std::unique_ptr<GpuMemory>> sums, values;
  std::vector<cuda::Addition> additions;
  for (int i = 0; i < many; ++i) {
    sums.push_back(std::make_unique<GpuMemory>(bytes(numbers<float>(100 + i, i))));
    values.push_back(std::make_unique<GpuMemory>(bytes(numbers<BFloat>(100 + i, 2 * i))));
    additions.push_back({sums.back()->at(), values.back()->at(), 100 + i});
  }
  cuda::add_to_each(DType::Float32, DType::BFloat16, additions, nullptr);
  for (int i = 0; i < many; ++i) {
    const std::vector<float> after = read<float>(*sums[static_cast<size_t>(i)]);
    const std::vector<float> a = numbers<float>(100 + i, i);
    const std::vector<BFloat> b = numbers<BFloat>(100 + i, 2 * i);
    for (size_t j = 0; j < after.size(); ++j) ASSERT_EQ(after[j], a[j] + to_float(b[j]));
  }
}

}  // namespace
}  // namespace piper
