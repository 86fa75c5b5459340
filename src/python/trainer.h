// Trains a captured model, a batch at a time. No Python runs inside a step.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "python/plan.h"
#include "train/loop/checkpoint/checkpoints.h"
#include "train/loop/checkpoint/restore.h"
#include "train/loop/diff/diff.h"
#include "train/loop/evaluation_run.h"
#include "train/loop/training_run.h"
#include "train/step_times.h"

namespace piper::python {

using Tensors = std::map<std::string, at::Tensor>;

struct TrainerOptions {
  uint64_t seed = 0;
  std::optional<double> clip, clip_value;
  bool skip_not_finite = false;
  int64_t accumulate = 1;  // steps that make one update
  double timeout = 10;
};

/// What a step updates weights with.
struct TrainerOptimizer {
  OptimizerSettings settings;
  std::vector<ParameterGroup> groups;
};

struct Step {
  StepOutcome outcome;
  std::vector<double> microbatches;         // losses
  std::vector<double> metrics;              // means over the batch, in the order of the model's
  std::optional<double> further_rows = {};  // TrainingRun::further_rows
};

/// A step as it would be, looked at.
struct Comparison {
  DiffReport report;  // with one device that runs the same slices
  ReferenceStep reference;
  Tensors weights;             // after it
  bool counts_differ = false;  // slices have different shares in what the loss divides by
};

class Trainer {
 public:
  /// `initial`: first values of all parameters and buffers, by name, wherever they are. `world`: the processes that run
  /// the job together; none: all devices are in this one. They call all members but `plan` in the same order; what
  /// rank 0 gives for weights counts. `processor`: what computes; none: that of this machine.
  Trainer(Plan plan, Tensors initial, const TrainerOptions& options, std::shared_ptr<World> world,
          std::shared_ptr<Processor> processor = nullptr);
  ~Trainer();
  /// Ends the threads, whoever still holds the trainer; no other member is called any more. Not where one never comes
  /// back: then all stays as it is.
  void close();
  /// A thread never comes back.
  bool stuck() const { return run_ && (run_->job().stuck() || (evaluation_ && evaluation_->job().stuck())); }

  const Plan& plan() const { return plan_; }
  int64_t steps() const { return run_->steps(); }
  int64_t updates() const { return run_->updates(); }
  int64_t samples() const { return run_->samples(); }
  void set_progress(const RunProgress& progress) { run_->set_progress(progress); }
  /// Inputs in the order in which the model takes them: the whole batch, on the host or on a GPU.
  Step step(const std::vector<const at::Tensor*>& inputs, const TrainerOptimizer& optimizer);
  /// The same, where every process gives an equal part of the batch, in the order of the ranks.
  Step step_on_parts(const std::vector<const at::Tensor*>& parts, const TrainerOptimizer& optimizer);

  /// The next step, taken elsewhere with the same weights and compared with one device, or only searched for what is
  /// not finite: nothing changes here. Only where all devices are in this process, on the CPU.
  Comparison diff(const std::vector<const at::Tensor*>& inputs, const TrainerOptimizer& optimizer,
                  const DiffOptions& how);

  /// Before the first evaluation: its plan, and values of buffers that no step uses. Later calls change nothing.
  void prepare_evaluation(Plan plan, Tensors values);
  /// Nothing of the training changes.
  void begin_evaluation();
  /// Batches in which tokens are counted together, one after another. After an error, in one process, everything is
  /// as before the first evaluation.
  void evaluate(const std::vector<std::vector<const at::Tensor*>>& batches);
  Evaluation end_evaluation() { return evaluation_->end(); }
  /// What evaluations say beside the loss.
  const std::vector<std::string>& evaluated_metrics() const;

  /// After a step that failed: what the devices keep can be read. A step that is not finite has changed nothing.
  bool readable() const { return run_ && !stuck() && !world_ && run_->job().weights_are_whole(); }

  /// Also buffers that the model writes. The optimizer starts anew.
  void set_parameters(Tensors values);
  /// What is kept for a parameter, whole, on the host. Undefined: nothing is.
  at::Tensor kept(const std::string& name, Kept kept) { return run_->parameter(name, kept); }
  void set_kept(const std::string& name, Kept kept, const at::Tensor& whole);
  /// A buffer as the device has it that runs the first slice, on the host; `like`: its shape. Undefined: none writes
  /// it.
  at::Tensor buffer(const std::string& name, const at::Tensor& like);
  /// Operators with which several devices of this process take turns.
  std::vector<std::string> one_at_a_time();

  /// Begins to write a checkpoint after the last step, while the run goes on; waits for the one before. What is saved
  /// is said once. Its path.
  std::string save(const CheckpointOptions& options, const SaveForm& form, RunState state);
  /// Of saves that failed since the last call: why. `wait`: until everything is on the disk.
  std::vector<Diagnostic> failed_saves(bool wait);
  /// From a checkpoint, or from the newest sound one of a folder; nothing: there is none.
  struct Resumption {
    Resumed from;
    RunState state;
  };
  std::optional<Resumption> resume(const std::string& folder, const SaveForm& form);
  /// The last resumption failed after it had begun to replace what the devices hold. In all processes alike.
  bool half_restored() const { return half_restored_; }

  /// Of all devices; in a job of several processes only at rank 0.
  std::vector<DeviceFlight> flights() { return run_->flights(); }
  /// Memory of the fullest device of this process, since the run began.
  int64_t peak_bytes() const { return run_->peak_bytes(); }
  /// How long a step takes beside what was predicted, a line; empty: nothing is known about the devices.
  std::string prediction() const;

 private:
  void check_inputs(const std::vector<const at::Tensor*>& inputs, int64_t batch) const;
  std::vector<at::Tensor> whole_batch(const std::vector<const at::Tensor*>& parts);
  FillInput fill_from(const std::vector<const at::Tensor*>& inputs) const;
  StepSettings settings(const std::vector<const at::Tensor*>& inputs, const TrainerOptimizer& optimizer) const;
  void add_losses(const std::vector<SliceLoss>& here, Step& step);
  const SavedModel& saved(const SaveForm& form);
  void collect_failures(bool wait);
  void take_from_rank_0(Tensors& values);
  void sum_everywhere(at::Tensor& tensor);

  Plan plan_;
  Tensors initial_;  // until the devices have them
  std::shared_ptr<Processor> processor_;
  std::shared_ptr<World> world_;
  Timeouts timeout_;
  uint64_t seed_ = 0;
  std::unique_ptr<TrainingRun> run_;
  std::unique_ptr<EvaluationRun> evaluation_;  // once there was one
  Tensors only_evaluated_;                     // what no step uses
  std::optional<SavedModel> saved_;            // after the first save or resumption
  std::unique_ptr<Checkpoints> checkpoints_;
  std::vector<Diagnostic> failed_saves_;
  bool half_restored_ = false;
  double loss_ = 0;  // of the last step
  StepTimes times_;
};

}  // namespace piper::python
