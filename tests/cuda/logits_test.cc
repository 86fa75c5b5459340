#include "runtime/cuda/logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cuda/elements.h"

namespace piper {
namespace {

/// Against sums on the host. The second half of the words is elsewhere for some targets, one row has no gradient.
template <class Wide, class Element>
void check(DType dtype, int64_t rows, int64_t columns, double tolerance) {
  SCOPED_TRACE(testing::Message() << rows << " x " << columns);
  constexpr int64_t first = 5;
  std::vector<Element> logits;
  std::vector<int64_t> targets;
  std::vector<Wide> gradient;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      logits.push_back(narrowed<Element>(30 * std::sin(static_cast<double>(r * columns + c))));
    targets.push_back(r % 3 == 0 ? first - 1 : first + (r * 7) % columns);
    gradient.push_back(r % 5 == 1 ? Wide(0) : static_cast<Wide>(0.5 + 0.1 * static_cast<double>(r % 4)));
  }
  const GpuMemory at(bytes(logits)), sums(std::vector<std::byte>(static_cast<size_t>(rows) * sizeof(Wide))),
      where(bytes(targets)), times(bytes(gradient));
  const cuda::Logits given{dtype, at.at(), rows, columns};
  cuda::logsumexp_of_rows(given, sums.at(), nullptr);
  cuda::softmax_gradient(given, sums.at(), static_cast<const int64_t*>(static_cast<const void*>(where.at())),
                         times.at(), first, nullptr);
  const std::vector<Wide> logs = read<Wide>(sums);
  const std::vector<Element> after = read<Element>(at);
  for (int64_t r = 0; r < rows; ++r) {
    const auto row = static_cast<size_t>(r);
    double sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += std::exp(wide(logits[static_cast<size_t>(r * columns + c)]));
    ASSERT_NEAR(logs[row], std::log(sum), tolerance * 30) << "row " << r;
    for (int64_t c = 0; c < columns; ++c) {
      const auto i = static_cast<size_t>(r * columns + c);
      const double power = std::exp(wide(logits[i])) / sum - (c + first == targets[row] ? 1 : 0);
      const double rounding = dtype == DType::BFloat16 ? 0x1p-8 : tolerance * 30;
      ASSERT_NEAR(wide(after[i]), power * static_cast<double>(gradient[row]), rounding)
          << "row " << r << ", column " << c;
    }
  }
}

TEST(Logits, PowersAndGradients) {
  SKIP_WITHOUT_GPU();
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{1, 1}, {3, 7}, {8, 512}, {5, 2049}, {17, 6000}};
  for (const auto& [rows, columns] : sizes) {
    check<float, BFloat>(DType::BFloat16, rows, columns, 1e-6);
    check<float, float>(DType::Float32, rows, columns, 1e-6);
    check<double, double>(DType::Float64, rows, columns, 1e-14);
  }
}

}  // namespace
}  // namespace piper
