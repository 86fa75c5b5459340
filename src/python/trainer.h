// Trains a captured model, a batch at a time. No Python runs inside a step.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "python/plan.h"
#include "runtime/flight.h"
#include "runtime/job.h"
#include "train/loop/together.h"

namespace piper::python {

using Tensors = std::map<std::string, at::Tensor>;

/// The computations of another, and the losses that they gave.
class ObservedLosses : public Computations {
 public:
  /// Of devices that share samples the first counts.
  ObservedLosses(Computations& inner, const ModelGraph& model, const piper::Plan& plan);

  ComputationForm form(std::string_view name, Pass pass) const override { return inner_.form(name, pass); }
  std::unique_ptr<Computation> make(const ComputationSite& site) override;
  TensorForm value(std::string_view name, int64_t samples) const override { return inner_.value(name, samples); }
  int64_t sample_dim(std::string_view value) const override { return inner_.sample_dim(value); }
  ExchangeForm exchange(std::string_view value, int64_t samples, int64_t parts, bool inwards) const override {
    return inner_.exchange(value, samples, parts, inwards);
  }
  ParameterForm parameter(std::string_view name) const override { return inner_.parameter(name); }

  void forget();
  /// By the first sample of the slice.
  std::map<int64_t, double> losses() const;

 private:
  friend class ObservedComputation;
  Computations& inner_;
  const piper::Plan& plan_;
  std::string loss_;  // the value
  mutable std::mutex mutex_;
  std::map<int64_t, double> seen_;
};

struct TrainerOptions {
  uint64_t seed = 0;
  std::optional<double> clip;
  bool skip_not_finite = false;
  double patience = 10;
};

struct Step {
  StepOutcome outcome;
  std::vector<double> microbatches;  // losses
};

class Trainer {
 public:
  /// `initial`: first values of all parameters and buffers, by name. `world`: the processes that run the job together;
  /// none: all devices are threads of this one. They call all members but `plan` in the same order; what rank 0 gives
  /// for weights counts.
  Trainer(Plan plan, Tensors initial, const TrainerOptions& options, World* world);
  ~Trainer();

  const Plan& plan() const { return plan_; }
  int64_t steps() const { return next_; }
  int64_t updates() const { return updates_; }
  /// Inputs in the order in which the model takes them: the whole batch.
  Step step(const std::vector<const at::Tensor*>& inputs, const OptimizerSettings& optimizer);

  /// The optimiser starts anew.
  void set_parameters(Tensors values);
  /// What is kept for a parameter, whole. Undefined: nothing is.
  at::Tensor kept(const std::string& name, Kept kept);
  void set_kept(const std::string& name, Kept kept, const at::Tensor& whole);
  /// A buffer as the first device that writes it has it, or as it is in `like`. Undefined: no device writes it.
  at::Tensor buffer(const std::string& name, const at::Tensor& like);
  void set_progress(int64_t steps, int64_t updates);

  /// Of all devices; in a job of several processes only at rank 0.
  std::vector<DeviceFlight> flights();

 private:
  void check_inputs(const std::vector<const at::Tensor*>& inputs) const;
  std::vector<double> microbatch_losses();
  void take_from_rank_0(Tensors& values);
  void sum_everywhere(at::Tensor& numbers);

  Plan plan_;
  Tensors initial_;
  TrainerOptions options_;
  CapturedComputations computations_;
  ObservedLosses observed_;
  World* world_;
  std::unique_ptr<Job> job_;
  std::optional<Together> together_;
  int64_t next_ = 0, updates_ = 0;
};

}  // namespace piper::python
