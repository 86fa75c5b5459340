#include "schedule/timelines/list_search.h"

#include <algorithm>
#include <cstdint>

#include "base/invariant.h"

namespace piper::timelines {
namespace {

constexpr double memory_rounding = 1e-9;

/// Equal on every machine, unlike the distributions of the standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
  double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

class Search {
 public:
  Search(const ListPasses& passes, ListOrder& order, const ListSearch& search)
      : p_(passes),
        order_(order),
        best_(order),
        s_(search),
        clock_(passes),
        random_(search.seed),
        place_(passes.rank.size(), 0) {
    for (const auto& row : order)
      for (size_t k = 0; k < row.size(); ++k) place_[row[k]] = static_cast<int>(k);
    for (const auto& row : order) total_ += static_cast<double>(row.size());
    kept_.resize(p_.ranks);
    for (int r = 0; r < p_.ranks; ++r) {
      double kept = 0;
      for (const int pass : order[r]) {
        kept_[r].push_back(kept);
        kept += p_.memory[pass];
      }
    }
    double sum = 0;
    for (int r = 0; r < p_.ranks; ++r) sum += p_.work[r];
    mean_ = sum / total_;
  }

  double run() {
    const auto first = clock_.run(order_);
    invariant(first.has_value(), "the search starts from an order that runs");
    current_ = best_makespan_ = *first;
    spent_ = total_;
    look();
    while (spent_ < s_.visits && best_makespan_ > s_.goal + p_.rounding) {
      const double left = 1 - spent_ / s_.visits;
      temperature_ = s_.heat * mean_ * left * left;
      step();
    }
    order_ = std::move(best_);
    return best_makespan_;
  }

 private:
  /// Times and the longest path of the current order.
  void look() {
    clock_.run_backwards(order_);
    critical_.clear();
    for (int r = 0; r < p_.ranks; ++r)
      for (const int pass : order_[r])
        if (clock_.start[pass] + clock_.rest[pass] >= current_ - p_.rounding) critical_.push_back(pass);
    spent_ += 2 * total_;
  }

  /// May `b` run before `a`, which is directly before it on their rank?
  bool may_swap(int a, int b) const { return a / 3 != b / 3 && p_.before[b] != a; }

  void step() {
    spent_ += 8;
    const int pass = critical_[random_.below(static_cast<int>(critical_.size()))];
    const int r = p_.rank[pass], at = place_[pass];
    std::vector<int>& row = order_[r];
    const int size = static_cast<int>(row.size());
    int distance = 1;
    while (distance < 6 && random_.below(2)) ++distance;
    const int to = random_.below(2) ? at - distance : at + distance;
    if (to < 0 || to >= size) return;
    const int low = std::min(at, to), high = std::max(at, to);
    // Legal on this rank?
    if (to < at) {
      for (int k = at - 1; k >= to; --k)
        if (!may_swap(row[k], pass)) return;
      std::rotate(row.begin() + to, row.begin() + at, row.begin() + at + 1);
    } else {
      for (int k = at + 1; k <= to; ++k)
        if (!may_swap(pass, row[k])) return;
      std::rotate(row.begin() + at, row.begin() + at + 1, row.begin() + to + 1);
    }
    const auto undo = [&] {
      if (to < at)
        std::rotate(row.begin() + to, row.begin() + to + 1, row.begin() + at + 1);
      else
        std::rotate(row.begin() + at, row.begin() + to, row.begin() + to + 1);
    };
    double kept = kept_[r][low];
    for (int k = low; k <= high; ++k)
      if ((kept += p_.memory[row[k]]) > p_.limit + memory_rounding) return undo();
    const double allowed = current_ + temperature_ * random_.fraction();
    if (estimate(row, low, high) > allowed + p_.rounding) return undo();
    const auto makespan = clock_.run(order_);
    spent_ += total_;
    if (!makespan || *makespan > allowed + p_.rounding) {
      undo();
      clock_.run(order_);
      spent_ += total_;
      return;
    }
    kept = kept_[r][low];
    for (int k = low; k <= high; ++k) {
      place_[row[k]] = k;
      kept_[r][k] = kept;
      kept += p_.memory[row[k]];
    }
    current_ = *makespan;
    look();
    if (current_ < best_makespan_ - p_.rounding) {
      best_makespan_ = current_;
      best_ = order_;
    }
  }

  /// The longest way through the places that changed, by the times of before.
  double estimate(const std::vector<int>& row, int low, int high) const {
    double free = low == 0 ? 0 : clock_.end[row[low - 1]];
    double begin[8];
    for (int k = low; k <= high; ++k) {
      const int pass = row[k], before = p_.before[pass];
      if (before != ListPasses::none) free = std::max(free, clock_.end[before] + p_.lag[pass]);
      begin[k - low] = free;
      free += p_.time[pass];
    }
    double rest = high + 1 < static_cast<int>(row.size()) ? clock_.rest[row[high + 1]] : 0;
    double longest = 0;
    for (int k = high; k >= low; --k) {
      const int pass = row[k], after = p_.after[pass];
      if (after != ListPasses::none) rest = std::max(rest, clock_.rest[after] + p_.lag[after]);
      rest += p_.time[pass];
      longest = std::max(longest, begin[k - low] + rest);
    }
    return longest;
  }

  const ListPasses& p_;
  ListOrder& order_;
  ListOrder best_;
  const ListSearch s_;
  ListClock clock_;
  Random random_;
  std::vector<int> place_;
  std::vector<std::vector<double>> kept_;  // before each place
  std::vector<int> critical_;
  double total_ = 0, mean_ = 0;
  double spent_ = 0, current_ = 0, best_makespan_ = 0, temperature_ = 0;
};

}  // namespace

double improve(const ListPasses& passes, ListOrder& order, const ListSearch& search) {
  return Search(passes, order, search).run();
}

}  // namespace piper::timelines
