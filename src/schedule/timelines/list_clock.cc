#include "schedule/timelines/list_clock.h"

#include <algorithm>

namespace piper::timelines {

ListClock::ListClock(const ListPasses& passes)
    : start(passes.rank.size(), 0),
      end(passes.rank.size(), 0),
      rest(passes.rank.size(), 0),
      passes_(passes),
      next_(passes.ranks, 0),
      stamp_(passes.rank.size(), 0) {
  sequence_.reserve(passes.rank.size());
}

std::optional<double> ListClock::run(const ListOrder& order) {
  ++run_;
  sequence_.clear();
  std::ranges::fill(next_, 0);
  awake_.clear();
  for (int r = passes_.ranks - 1; r >= 0; --r) awake_.push_back(r);
  double makespan = 0;
  size_t expected = 0;
  for (const auto& row : order) expected += row.size();
  while (!awake_.empty()) {
    const int r = awake_.back();
    awake_.pop_back();
    const std::vector<int>& row = order[r];
    int k = next_[r];
    double free = k == 0 ? 0 : end[row[k - 1]];
    for (; k < static_cast<int>(row.size()); ++k) {
      const int pass = row[k], before = passes_.before[pass];
      if (before != ListPasses::none) {
        if (stamp_[before] != run_) break;
        free = std::max(free, end[before] + passes_.lag[pass]);
      }
      start[pass] = free;
      free += passes_.time[pass];
      end[pass] = free;
      stamp_[pass] = run_;
      sequence_.push_back(pass);
      // The rank that waits for just this pass can go on.
      const int after = passes_.after[pass];
      if (after == ListPasses::none) continue;
      const int other = passes_.rank[after];
      if (other != r && next_[other] < static_cast<int>(order[other].size()) && order[other][next_[other]] == after)
        awake_.push_back(other);
    }
    next_[r] = k;
    makespan = std::max(makespan, free);
  }
  if (sequence_.size() != expected) return std::nullopt;
  return makespan;
}

void ListClock::run_backwards(const ListOrder& order) {
  for (int r = 0; r < passes_.ranks; ++r) next_[r] = static_cast<int>(order[r].size());
  for (auto it = sequence_.rbegin(); it != sequence_.rend(); ++it) {
    const int pass = *it, r = passes_.rank[pass], after = passes_.after[pass];
    const int k = --next_[r];
    double longest = k + 1 < static_cast<int>(order[r].size()) ? rest[order[r][k + 1]] : 0;
    if (after != ListPasses::none) longest = std::max(longest, rest[after] + passes_.lag[after]);
    rest[pass] = longest + passes_.time[pass];
  }
}

double peak_memory(const ListPasses& passes, const std::vector<int>& row) {
  double kept = 0, most = 0;
  for (const int pass : row) most = std::max(most, kept += passes.memory[pass]);
  return most;
}

bool fits(const ListPasses& passes, const ListOrder& order) {
  constexpr double rounding = 1e-9;
  return std::ranges::all_of(
      order, [&](const std::vector<int>& row) { return peak_memory(passes, row) <= passes.limit + rounding; });
}

}  // namespace piper::timelines
