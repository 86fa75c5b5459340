// When every pass of an order starts and how long the rest takes after it.
#pragma once

#include <optional>

#include "schedule/timelines/list_problem.h"

namespace piper::timelines {

/// Runs orders; keeps its arrays between runs.
class ListClock {
 public:
  explicit ListClock(const ListPasses& passes);

  /// The makespan; nothing if the ranks wait for each other. `start` is then of no use.
  std::optional<double> run(const ListOrder& order);
  /// After a successful run of the same order: the longest way from the start of each pass to the end of the step.
  void run_backwards(const ListOrder& order);

  std::vector<double> start, end, rest;

 private:
  const ListPasses& passes_;
  std::vector<int> sequence_;  // passes as they ran
  std::vector<int> next_;      // by rank
  std::vector<int> stamp_;     // by pass: the last run that it ended in
  std::vector<int> awake_;
  int run_ = 0;
};

/// Most activations on a rank at any time.
double peak_memory(const ListPasses& passes, const std::vector<int>& row);
bool fits(const ListPasses& passes, const ListOrder& order);

}  // namespace piper::timelines
