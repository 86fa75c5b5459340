// Where a plan first computes something else than a reference, or something that is not finite.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/loop/diff/step_watch.h"

namespace piper {

/// In the user's words.
struct FirstDifference {
  int64_t step = 0;
  Finding finding;
  std::string what;                                    // `value layer.3.add`
  std::string chunk;                                   // or bucket
  std::string pass;                                    // empty: none
  std::string microbatch;                              // `mb=2`; empty: of no slice
  std::string made_by;                                 // operator; empty: it cannot be said
  std::string operation;                               // `device 1: op 17 recv ...`; empty: it was so before the step
  std::string read_by;                                 // of weights and inputs: the operation
  std::string written_by, last_right;                  // of memory: the operation; that which has read it before
  std::string line, directive;                         // of the schedule; empty: none
  std::vector<std::string> agreed, differed, unknown;  // what the operation reads
};

struct DiffReport {
  bool finite = false;  // only that was looked at
  std::string against;
  int64_t steps = 0;     // looked at
  int64_t compared = 0;  // values, weights, gradients and updates
  int64_t differing = 0;
  double largest = 0;  // relative difference of what agrees
  std::string where;   // that is
  std::optional<FirstDifference> first;
  std::map<std::string, std::string> not_compared;  // and why

  bool equal() const { return !first; }
};

/// For people, and for machines (docs/json.md).
std::string print(const DiffReport& report);
std::string print_json(const DiffReport& report);

struct DiffOptions {
  std::optional<double> tolerance;  // none: by dtype
  bool find_nan = false;            // nothing is compared; everything is to be finite
};

/// Gives a job the weights of another, and the state of its optimizer.
void copy_state(Job& from, Job& to, const ModelGraph& graph);

/// Looks at the steps of a job, of which it hears by `after`.
class Diff {
 public:
  Diff(const StepConfig& step, std::shared_ptr<const CapturedModel> captured, std::shared_ptr<const Plan> plan,
       std::function<void(const std::string& name, at::Tensor& whole)> initial, const DiffOptions& options);

  /// For RunOptions::after_op of the job.
  void after(int device, OpId op, Frame& frame) { watch_.after(device, op, frame); }
  /// Takes a step, and one on one device with the same weights.
  StepOutcome step(Job& job, StepSettings settings);
  /// The same, against a step that somebody has taken elsewhere.
  StepOutcome step(Job& job, StepSettings settings, const ReferenceStep& against, const std::string& name);

  /// After a step on both sides: what the updates made of the weights.
  void compare_weights(Job& ours, Job& theirs, int64_t step);

  const DiffReport& report() const { return report_; }
  /// Of the last step on one device.
  const ReferenceStep& reference() const { return reference_; }

 private:
  void look(const std::vector<Finding>& findings, int64_t step);
  FirstDifference describe(const Finding& finding, int64_t step) const;
  void add_inputs(const Finding& finding, FirstDifference& out) const;
  std::string operator_of(const Finding& finding) const;

  const StepConfig step_;
  std::shared_ptr<const CapturedModel> captured_;
  std::shared_ptr<const Plan> plan_;
  OneByOne one_by_one_;
  StepWatch watch_;
  std::set<std::string> buffers_;  // of the model, which passes write
  DiffReport report_;
  ReferenceStep reference_;
};

}  // namespace piper
