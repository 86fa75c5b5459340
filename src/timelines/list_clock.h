// When every pass of an order runs, and how long the step goes on after it.
#pragma once

#include <optional>

#include "timelines/list_problem.h"

namespace piper::timelines {

/// Runs orders; keeps its arrays between runs.
class ListClock {
 public:
  explicit ListClock(const ListPasses& passes) : passes_(passes), times_(passes.size()), next_(passes.ranks) {
    sequence_.reserve(passes.size());
  }

  /// The makespan; nothing if ranks would wait for each other for ever.
  std::optional<double> run(const ListOrder& order);
  /// After a run that has ended, of the same order: sets `rest` of every pass.
  void run_backwards(const ListOrder& order);

  struct Time {
    double start = 0;
    double end = 0;
    double rest = 0;  // the longest way from the start of the pass to the end of the step
    int run = 0;      // the last run in which it ended
  };
  const Time& operator[](int pass) const { return times_[pass]; }

 private:
  const ListPasses& passes_;
  std::vector<Time> times_;
  std::vector<int> next_;      // by rank
  std::vector<int> awake_;     // ranks that may go on
  std::vector<int> sequence_;  // passes as they ran
  int run_ = 0;
};

/// Most activations that each rank keeps.
std::vector<double> peaks(const ListPasses& passes, const ListOrder& order);

}  // namespace piper::timelines
