// Measures how long computations take, for the simulator.
#pragma once

#include <map>
#include <mutex>

#include "cost/cost_table.h"
#include "runtime/passing_computations.h"

namespace piper {

/// The computations of another, one at a time on the whole machine, with a stopwatch. Tables hold the median.
class TimedComputations : public PassingComputations {
 public:
  using PassingComputations::PassingComputations;

  std::unique_ptr<Computation> make(const ComputationSite& site) override;

  /// Forgets what was measured so far: first runs are slower.
  void forget();
  CostTable costs() const;

 private:
  friend class TimedComputation;
  mutable std::mutex running_;
  std::map<CostTable::Key, std::vector<double>> seconds_;
};

/// The median.
double median(std::vector<double> numbers);

}  // namespace piper
