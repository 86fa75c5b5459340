#include "timelines/list_clock.h"

#include <algorithm>

namespace piper::timelines {

std::optional<double> ListClock::run(const ListOrder& order) {
  ++run_;
  sequence_.clear();
  std::ranges::fill(next_, 0);
  awake_.clear();
  size_t expected = 0;
  for (int r = passes_.ranks - 1; r >= 0; --r) {
    awake_.push_back(r);
    expected += order[r].size();
  }
  double makespan = 0;
  while (!awake_.empty()) {
    const int r = awake_.back();
    awake_.pop_back();
    const std::vector<int>& row = order[r];
    int& k = next_[r];
    double free = k == 0 ? 0 : times_[row[k - 1]].end;
    for (; k < static_cast<int>(row.size()); ++k) {
      const ListPasses::One& pass = passes_[row[k]];
      if (pass.before != ListPasses::none) {
        const Time& before = times_[pass.before];
        if (before.run != run_) break;
        free = std::max(free, before.end + pass.lag);
      }
      Time& time = times_[row[k]];
      time.start = free;
      time.end = free += pass.time;
      time.run = run_;
      sequence_.push_back(row[k]);
      if (pass.after == ListPasses::none) continue;
      const int other = passes_[pass.after].rank;
      if (other != r && next_[other] < static_cast<int>(order[other].size()) &&
          order[other][next_[other]] == pass.after)
        awake_.push_back(other);  // it waits for just this pass
    }
    makespan = std::max(makespan, free);
  }
  if (sequence_.size() != expected) return std::nullopt;
  return makespan;
}

void ListClock::run_backwards(const ListOrder& order) {
  for (int r = 0; r < passes_.ranks; ++r) next_[r] = static_cast<int>(order[r].size());
  for (auto it = sequence_.rbegin(); it != sequence_.rend(); ++it) {
    const ListPasses::One& pass = passes_[*it];
    const std::vector<int>& row = order[pass.rank];
    const int k = next_[pass.rank]--;
    double rest = k < static_cast<int>(row.size()) ? times_[row[k]].rest : 0;
    if (pass.after != ListPasses::none) rest = std::max(rest, times_[pass.after].rest + passes_[pass.after].lag);
    times_[*it].rest = rest + pass.time;
  }
}

std::vector<double> peaks(const ListPasses& passes, const ListOrder& order) {
  std::vector<double> all;
  for (const std::vector<int>& row : order) {
    double kept = 0, most = 0;
    for (const int pass : row) most = std::max(most, kept += passes[pass].memory);
    all.push_back(most);
  }
  return all;
}

}  // namespace piper::timelines
