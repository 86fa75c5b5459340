// Measures how long computations take, for the simulator.
#pragma once

#include <map>
#include <mutex>

#include "cost/cost_table.h"
#include "runtime/computation.h"

namespace piper {

/// The computations of another, one at a time on the whole machine, with a stopwatch. Tables hold the median.
class TimedComputations : public Computations {
 public:
  explicit TimedComputations(Computations& inner) : inner_(inner) {}

  ComputationForm form(std::string_view name, Pass pass) const override { return inner_.form(name, pass); }
  std::unique_ptr<Computation> make(const ComputationSite& site) override;
  TensorForm value(std::string_view name, int64_t samples) const override { return inner_.value(name, samples); }
  int64_t sample_dim(std::string_view value) const override { return inner_.sample_dim(value); }
  ExchangeForm exchange(std::string_view value, int64_t samples, int64_t parts, bool inwards) const override {
    return inner_.exchange(value, samples, parts, inwards);
  }
  ParameterForm parameter(std::string_view name) const override { return inner_.parameter(name); }

  /// Forgets what was measured so far: first runs are slower.
  void forget();
  CostTable costs() const;

 private:
  friend class TimedComputation;
  Computations& inner_;
  mutable std::mutex running_;
  std::map<CostTable::Key, std::vector<double>> seconds_;
};

/// The median.
double median(std::vector<double> numbers);

}  // namespace piper
