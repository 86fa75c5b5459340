// Training from a configuration: a TrainingRun with its model, its data and its optimizer.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "checkpoint/reader.h"
#include "train/config.h"
#include "train/data/text_tokens.h"
#include "train/data/token_source.h"
#include "train/loop/checkpoint/initialize.h"
#include "train/loop/checkpoint/saved_model.h"
#include "train/loop/evaluation_run.h"
#include "train/loop/protect/recent_states.h"
#include "train/loop/training_run.h"
#include "train/metrics.h"
#include "train/planted_fault.h"

namespace piper {

struct TrainingOptions {
  JobOptions job;
  /// Messages take the time that the links of this cluster say.
  std::optional<Cluster> emulate;
  /// What the compiler orders operations by: the emulated cluster and formulas, if not given.
  std::optional<Cluster> cluster;
  std::optional<CostTable> costs;
  /// Computations run one at a time and are timed.
  bool timed = false;
  int threads = 1;  // of every device inside one operator
  /// Compiles chunks; none: operators run as they were recorded.
  std::shared_ptr<KernelStore> kernels = nullptr;
  /// What computes for all devices. It outlives the training.
  Processor* processor = &host_processor();
  /// The processes that run the job together, and what they must have in common; none: all devices are threads of this
  /// one. It outlives the training.
  World* world = nullptr;
  Identity identity;
  /// As in TrainingRunOptions.
  std::vector<std::string> hosts = {};
  /// Planted in this process.
  std::optional<PlantedFault> fault;
};

/// Seconds until training could begin.
struct StartUp {
  double plan = 0;     // captured, compiled and, among several processes, handed out and checked by all
  double devices = 0;  // memory, executors, communicators, weights
};

/// What the simulator says about a step.
struct Prediction {
  double seconds = 0;
  double at_peak = 0;  // seconds that the model's operations would take at the devices' peak
};

/// A model and the plan of a step, or of an evaluation, of it.
struct PlannedTraining {
  TrainableModel model;
  PreparedTraining prepared;
};
/// Captured, compiled and, with several processes, handed out. `schedule`: none is one device that runs the batch at
/// once.
Result<PlannedTraining> prepare(const SourceFilePtr& config, const TrainConfig& train,
                                const std::optional<Schedule>& schedule, const TrainingOptions& options,
                                PlanFor plan_for = PlanFor::Training);

class Training {
 public:
  /// `config`: a configuration with all its sections. The rest as for `prepare`.
  static Result<std::unique_ptr<Training>> make(const SourceFilePtr& config, const TrainConfig& train,
                                                const std::optional<Schedule>& schedule,
                                                const TrainingOptions& options);
  ~Training();

  const TrainableModel& model() const { return model_; }
  const ModelGraph& graph() const { return *run_.prepared().captured->graph(); }
  const Plan& plan() const { return run_.plan(); }
  const TokenSource& data() const { return *tokens_; }
  TrainingRun& run() { return run_; }
  Job& job() { return run_.job(); }
  const StartUp& start_up() const { return start_up_; }
  /// What the plan was compiled for.
  const Cluster& cluster() const { return cluster_; }
  /// None: nothing is known about the devices.
  const std::optional<Prediction>& prediction() const { return prediction_; }
  int64_t tokens_per_step() const { return model_.step.batch * model_.step.sequence; }

  /// The next step. Throws RunError.
  StepMetrics step();

  /// Whether the configuration wants evaluations: after the steps so far, and at the end.
  bool evaluates() const { return train_.evaluation.has_value(); }
  bool evaluates_now() const;
  /// The weights are those of the steps so far, and not of the first of several that make an update.
  bool between_updates() const { return run_.steps() % train_.accumulate == 0; }
  /// On the batches of [evaluation], with the weights as they are; the steps that follow are the same as without.
  /// Throws RunError.
  EvaluationMetrics evaluate();

  /// Before the first step: the weights of a folder, see train/loop/checkpoint/initialize.h.
  Result<std::vector<std::string>> initialize_from(const std::string& folder) {
    return piper::initialize_from(folder, model_, run_);
  }
  /// Where it stands, and how it is saved.
  RunState state() const;
  SaveForm save_form() const;
  /// Before the first step: resumes where the checkpoint stands. What is set differently since then, a line each.
  /// E904, E905: it is of another model or run; E902: it is damaged; what the devices hold is undefined then.
  Result<std::vector<std::string>> resume(const FolderReader& folder, const SavedModel& saved);
  /// The same for what devices held in memory (train/loop/protect): where it stands, and what it stood at then.
  StatePosition progress() const;
  void go_on_after(const StatePosition& progress);
  /// What a step is given after so many updates, for whoever takes it with `job`. The training outlives it.
  StepSettings settings(int64_t step, int64_t updates) const;

 private:
  Training(SourceFilePtr config, TrainableModel model, PreparedTraining prepared, TrainConfig train,
           std::unique_ptr<TokenSource> tokens, const TrainingOptions& options, TrainingRunOptions run);
  Checked read_prompts();
  /// What the model writes after them; at rank 0.
  std::vector<WrittenText> write_texts();
  /// Samples by their numbers in the whole run.
  void fill(const TokenSource& tokens, std::string_view input, int64_t first_sample, at::Tensor& into) const;

  const SourceFilePtr config_;
  TrainableModel model_;
  TrainConfig train_;
  std::vector<ParameterGroup> groups_;
  Cluster cluster_;
  std::unique_ptr<TokenSource> tokens_;
  TrainingRun run_;
  std::optional<PreparedTraining> evaluated_;  // how
  std::unique_ptr<TokenSource> evaluated_tokens_;
  std::unique_ptr<EvaluationRun> evaluation_;  // once there was one
  std::unique_ptr<TextTokens> text_;
  std::vector<std::vector<int64_t>> prompts_;  // of evaluations
  StepMetrics last_;
  StartUp start_up_;
  std::optional<Prediction> prediction_;
  mutable std::atomic<int64_t> filling_ = 0;  // nanoseconds, in this step
};

/// What the devices did with the last step, and their memory: a table for people.
std::string device_table(const Plan& plan, const std::vector<DeviceFlight>& flights, int64_t step);

}  // namespace piper
