// Evaluation: forward passes over batches with the weights of a run, by a plan of their own on its devices. Nothing of
// the run changes: neither weights nor the optimizer, nor random numbers, nor its position in the data.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/loop/training_run.h"

namespace piper {

/// What came out of some batches.
struct Evaluation {
  double loss = 0;
  std::vector<double> metrics = {};  // in the order of the model's
  int64_t batches = 0;
  double seconds = 0;

  double perplexity() const;  // e to the loss
};

class EvaluationRun {
 public:
  /// `prepared`: for evaluation (`PlanFor`), of the model as it is evaluated, under the schedule of the run. All
  /// processes make it, and call its members in the same order. The run outlives it.
  EvaluationRun(TrainingRun& run, PreparedTraining prepared, const StepConfig& step);

  const Plan& plan() const { return *prepared_.plan; }
  const CapturedModel& captured() const { return *prepared_.captured; }
  Job& job() { return *job_; }

  /// `current` fills buffers that steps or evaluations change, and parameters that lie otherwise in the run: all
  /// processes ask for the same, in the same order. All other parameters are those of the run, without a copy.
  void begin(const std::function<void(const std::string& name, at::Tensor& whole)>& current);
  /// So many batches, in which tokens are counted together; `fill` as in StepSettings, over their samples. Throws
  /// RunError.
  void add(int64_t batches, FillInput fill);
  /// Means over all batches since `begin`.
  Evaluation end();
  /// Of a batch, the token that follows each sample (ModelModule::next_token): -1 where that is none. `draw`: what
  /// random ones depend on, besides the run's seed and steps.
  std::vector<int64_t> next_tokens(FillInput fill, uint64_t draw);

 private:
  /// Forward passes over a batch.
  StepOutcome pass(FillInput fill, uint64_t seed);
  size_t metrics() const { return captured().slices()[0].operators.metrics.size(); }
  at::Tensor weights_in_run(int device, const PlanBucket& bucket) const;

  TrainingRun& run_;
  const PreparedTraining prepared_;
  CapturedComputations computations_;
  std::unique_ptr<Job> job_;
  std::vector<BucketId> apart_;  // whose weights are not in the run's memory
  Evaluation sums_;              // so far
  int64_t taken_ = 0;            // batches, ever
};

}  // namespace piper
