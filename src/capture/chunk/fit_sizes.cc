#include "capture/chunk/fit_sizes.h"

#include <algorithm>
#include <limits>

#include "base/saturate.h"

namespace piper {
namespace {

/// Capacity factors are given with at most four digits.
constexpr int64_t largest_divisor = 10'000;

}  // namespace

std::optional<Dim> fit_dim(const std::vector<Seen>& seen) {
  const auto same = [&](const Seen& one) { return one.size == seen[0].size; };
  if (std::all_of(seen.begin(), seen.end(), same)) return Dim{seen[0].size, false, 1, ""};
  for (int64_t divisor = 1; divisor <= largest_divisor; ++divisor) {
    // ceil(size * samples / divisor) == seen: size in ((seen - 1) * divisor / samples, seen * divisor / samples]
    int64_t low = 1, high = std::numeric_limits<int64_t>::max();
    for (const Seen& one : seen) {
      low = std::max(low, (one.size - 1) * divisor / one.samples + 1);
      high = std::min(high, one.size * divisor / one.samples);
    }
    if (low <= high) return Dim{high, true, divisor, ""};
  }
  return std::nullopt;
}

Amount fit_amount(const std::vector<Seen>& seen, size_t exact) {
  const auto [least, most] = std::minmax_element(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(exact),
                                                 [](const Seen& a, const Seen& b) { return a.samples < b.samples; });
  if (least->samples == most->samples) {  // one point: as steep as the others say, but not below zero
    const Seen& other = seen.back();
    int64_t slope = 0;
    if (other.samples != least->samples) slope = (other.size - least->size) / (other.samples - least->samples);
    slope = std::clamp<int64_t>(slope, 0, least->size / least->samples);
    return {least->size - slope * least->samples, slope};
  }
  const int64_t run = most->samples - least->samples;
  const int64_t slope = std::max<int64_t>(0, ceil_divide(std::max<int64_t>(0, most->size - least->size), run));
  int64_t fixed = 0;
  for (size_t i = 0; i < exact; ++i) fixed = std::max(fixed, seen[i].size - slope * seen[i].samples);
  return {fixed, slope};
}

}  // namespace piper
