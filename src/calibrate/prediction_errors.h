// How far predictions are from measurements, and what it costs to choose plans by them.
#pragma once

#include "calibrate/fit_cluster.h"

namespace piper {

/// Relative numbers: 0.08 is 8 %.
struct PredictionErrors {
  std::string set;
  int rows = 0;
  double mean = 0, bias = 0, worst = 0;  // of the error's size; of the error; the largest size
  int jobs = 0;                          // with several plans
  double regret_mean = 0, regret_median = 0, regret_worst = 0;
};

/// By set, in order of appearance. The regret of a job: how much longer the plan that is predicted to be the fastest
/// took than the one that was.
std::vector<PredictionErrors> errors_of(const std::vector<Observation>& observations,
                                        const std::vector<double>& predicted);

/// Cross-validation: the cluster is fitted to one part of the jobs (of the rows, in a set with few jobs), and predicts
/// the others; so with each of `folds` parts in turn.
Result<std::vector<PredictionErrors>> cross_validate(const std::vector<Observation>& observations, const Cluster& start,
                                                     int folds);

std::string print(const std::vector<PredictionErrors>& errors);

}  // namespace piper
