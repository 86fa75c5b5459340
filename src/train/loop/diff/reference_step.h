// What a step is compared with.
#pragma once

#include <map>
#include <set>
#include <tuple>

#include "runtime/frame.h"
#include "train/loop/captured_computations.h"
#include "train/loop/diff/slice_values.h"

namespace piper {

/// Parameter, chunk, pass, first sample of the slice.
using ContributionKey = std::tuple<std::string, std::string, Pass, int64_t>;

struct ReferenceStep {
  SliceValues values;
  std::map<std::string, at::Tensor> weights;              // before the step
  std::map<ContributionKey, at::Tensor> contributions;    // to gradients; none: only their sums are known
  std::map<std::string, at::Tensor> gradients;            // sums over all slices
  std::map<std::string, double> contributed;              // norms of all contributions, added up
  int64_t most_contributions = 1;                         // to one gradient
  double largest_contribution = 0, largest_gradient = 0;  // root mean squares
  double loss = 0, gradient_norm = 0;                     // of the mean over all slices
  int64_t losses = 0;                                     // slices that have one
  bool same_slices = true;                                // as those of what is compared; gradients belong to slices
};

/// One device that runs the chunks of a model one after the other, slice by slice, without plan and runtime: each chunk
/// on slices of the size that the plan has for it, in the passes that the plan has; values are joined where the next
/// chunk cuts them differently.
class OneByOne {
 public:
  /// `initial` fills model buffers that passes write. All but `plan` outlive it.
  OneByOne(const StepConfig& step, const CapturedModel& captured, const Plan& plan,
           std::function<void(const std::string& name, at::Tensor& whole)> initial);

  const Computations& computations() const { return computations_; }
  /// `weight`: of a parameter, before the step.
  ReferenceStep run(const StepSettings& settings, const std::function<at::Tensor(const std::string& name)>& weight);

 private:
  void run(const Chunk& chunk, Pass pass, int64_t part, const StepSettings& settings, ReferenceStep& out);
  at::Tensor read(const Value& value, int64_t samples, int64_t first_sample, const StepSettings& settings,
                  ReferenceStep& out) const;
  static void sum_up(const ModelGraph& graph, ReferenceStep& out);
  void divide_tokens(ReferenceStep& out) const;

  const StepConfig step_;
  const ModelGraph& graph_;
  CapturedComputations computations_;
  std::map<std::string, int64_t> samples_;                               // by chunk
  std::map<std::pair<std::string, int64_t>, std::set<Pass>> backwards_;  // by chunk and part of the batch
  std::map<std::pair<std::string, Pass>, std::unique_ptr<Computation>> made_;
  int64_t parts_ = 1;
  const int token_devices_;  // that share the tokens of a sample
};

}  // namespace piper
