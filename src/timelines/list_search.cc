#include "timelines/list_search.h"

#include <algorithm>
#include <array>

#include "base/invariant.h"
#include "timelines/list_clock.h"

namespace piper::timelines {
namespace {

/// Equal on every machine, unlike the distributions of the standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
  double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t next() {  // splitmix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

/// A pass goes from one place of its row to another; what is between moves by one.
struct Move {
  int from = 0;
  int to = 0;
  int low() const { return std::min(from, to); }
  int high() const { return std::max(from, to); }
  Move back() const { return {to, from}; }
};

void carry_out(std::vector<int>& row, const Move& move) {
  const auto first = row.begin();
  if (move.to < move.from)
    std::rotate(first + move.to, first + move.from, first + move.from + 1);
  else
    std::rotate(first + move.from, first + move.from + 1, first + move.to + 1);
}

class Search {
 public:
  Search(const ListPasses& passes, ListOrder& order, const ListSearch& search)
      : p_(passes), order_(order), search_(search), clock_(passes), random_(search.seed), places_(passes.size()) {
    double work = 0;
    kept_.resize(p_.ranks);
    for (int r = 0; r < p_.ranks; ++r) {
      kept_[r].resize(order[r].size() + 1, 0);
      note_places(r, 0, static_cast<int>(order[r].size()) - 1);
      total_ += static_cast<double>(order[r].size());
      work += p_.work[r];
    }
    mean_time_ = work / total_;
  }

  double run() {
    const auto first = clock_.run(order_);
    invariant(first.has_value(), "a search starts from an order that runs");
    makespan_ = *first;
    ListOrder best = order_;
    double shortest = makespan_;
    look();
    while (spent_ < search_.visits && shortest > search_.goal + p_.rounding) {
      const double left = 1 - spent_ / search_.visits;
      if (!step(search_.heat * mean_time_ * left * left) || makespan_ >= shortest - p_.rounding) continue;
      shortest = makespan_;
      best = order_;
    }
    order_ = std::move(best);
    return shortest;
  }

 private:
  static constexpr int farthest = 6;

  /// Tries one move of a random pass on the longest path; true if it was made.
  bool step(double tolerance) {
    spent_ += farthest;
    const int pass = critical_[random_.below(static_cast<int>(critical_.size()))], r = p_[pass].rank;
    int distance = 1;
    while (distance < farthest && random_.below(2) == 1) ++distance;
    const Move move{places_[pass], places_[pass] + (random_.below(2) == 1 ? distance : -distance)};
    std::vector<int>& row = order_[r];
    if (move.to < 0 || move.to >= static_cast<int>(row.size()) || !allowed(row, move)) return false;
    carry_out(row, move);
    const double most = makespan_ + tolerance * random_.fraction() + p_.rounding;
    if (!has_room(r, move) || estimate(row, move.low(), move.high()) > most) {
      carry_out(row, move.back());
      return false;
    }
    spent_ += total_;
    const auto makespan = clock_.run(order_);
    if (!makespan || *makespan > most) {
      carry_out(row, move.back());
      clock_.run(order_);
      spent_ += total_;
      return false;
    }
    makespan_ = *makespan;
    note_places(r, move.low(), move.high());
    look();
    return true;
  }

  /// Does nothing that the pass moves over need it, or the other way round? What goes through other ranks shows when
  /// the order runs.
  bool allowed(const std::vector<int>& row, const Move& move) const {
    const int pass = row[move.from];
    for (int k = move.low(); k <= move.high(); ++k) {
      if (k == move.from) continue;
      const bool same_stage = row[k] / 3 == pass / 3;
      if (same_stage || p_[pass].before == row[k] || p_[pass].after == row[k]) return false;
    }
    return true;
  }

  bool has_room(int r, const Move& move) const {
    double kept = kept_[r][move.low()];
    for (int k = move.low(); k <= move.high(); ++k)
      if (!p_.has_room(kept += p_[order_[r][k]].memory)) return false;
    return true;
  }

  /// The longest way through the places from low to high, with the times of the last order elsewhere.
  double estimate(const std::vector<int>& row, int low, int high) const {
    std::array<double, farthest + 1> start;
    double free = low == 0 ? 0 : clock_[row[low - 1]].end;
    for (int k = low; k <= high; ++k) {
      const ListPasses::One& pass = p_[row[k]];
      if (pass.before != ListPasses::none) free = std::max(free, clock_[pass.before].end + pass.lag);
      start[k - low] = free;
      free += pass.time;
    }
    double rest = high + 1 < static_cast<int>(row.size()) ? clock_[row[high + 1]].rest : 0;
    double longest = 0;
    for (int k = high; k >= low; --k) {
      const ListPasses::One& pass = p_[row[k]];
      if (pass.after != ListPasses::none) rest = std::max(rest, clock_[pass.after].rest + p_[pass.after].lag);
      rest += pass.time;
      longest = std::max(longest, start[k - low] + rest);
    }
    return longest;
  }

  void note_places(int r, int low, int high) {
    for (int k = low; k <= high; ++k) {
      places_[order_[r][k]] = k;
      kept_[r][k + 1] = kept_[r][k] + p_[order_[r][k]].memory;
    }
  }

  /// After a run: finds what is on the longest path.
  void look() {
    clock_.run_backwards(order_);
    critical_.clear();
    for (const std::vector<int>& row : order_)
      for (const int pass : row)
        if (clock_[pass].start + clock_[pass].rest >= makespan_ - p_.rounding) critical_.push_back(pass);
    spent_ += 2 * total_;
  }

  const ListPasses& p_;
  ListOrder& order_;
  const ListSearch search_;
  ListClock clock_;
  Random random_;
  std::vector<int> places_;                // by pass: its place in its row
  std::vector<std::vector<double>> kept_;  // by rank and place: activations before it
  std::vector<int> critical_;
  double makespan_ = 0;
  double total_ = 0, mean_time_ = 0, spent_ = 0;
};

}  // namespace

double improve(const ListPasses& passes, ListOrder& order, const ListSearch& search) {
  return Search(passes, order, search).run();
}

}  // namespace piper::timelines
