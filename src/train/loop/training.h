// A run of training: a model, a schedule, data and an optimiser, step by step.
#pragma once

#include <memory>
#include <optional>

#include "runtime/flight.h"
#include "runtime/job.h"
#include "train/config.h"
#include "train/data/token_source.h"
#include "train/loop/prepare_training.h"
#include "train/loop/together.h"
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
  /// What computes for all devices; none: the processor of this machine. It outlives the training.
  Processor* processor = nullptr;
  /// The processes that run the job together, and what they must have in common; none: all devices are threads of this
  /// one. It outlives the training.
  World* world = nullptr;
  Identity identity;
  /// Planted in this process.
  std::optional<PlantedFault> fault;
};

/// Seconds until training could begin.
struct StartUp {
  double plan = 0;     // captured, compiled and, among several processes, handed out and checked by all
  double devices = 0;  // memory, executors, communicators, weights
};

class TimedComputations;

class Training {
 public:
  /// `config`: a configuration with all its sections. `schedule`: none is one device that runs the batch at once.
  static Result<std::unique_ptr<Training>> make(const SourceFilePtr& config, const TrainConfig& train,
                                                const std::optional<Schedule>& schedule,
                                                const TrainingOptions& options);
  ~Training();

  const TrainableModel& model() const { return model_; }
  const ModelGraph& graph() const { return *prepared_.captured->graph(); }
  const Plan& plan() const { return *prepared_.plan; }
  const PreparedTraining& prepared() const { return prepared_; }
  const TokenSource& data() const { return *tokens_; }
  Job& job() { return *job_; }
  TimedComputations* timed() { return timed_.get(); }
  const StartUp& start_up() const { return start_up_; }
  /// What the plan was compiled for.
  const Cluster& cluster() const { return cluster_; }
  int64_t tokens_per_step() const { return model_.step.batch * model_.step.sequence; }

  /// The next step. Throws RunError.
  StepMetrics step();
  /// What a step is given after so many updates, for whoever takes it with `job`. The training outlives it.
  StepSettings settings(int64_t step, int64_t updates) const;

 private:
  Training(TrainableModel model, PreparedTraining prepared, TrainConfig train, std::unique_ptr<TokenSource> tokens,
           const TrainingOptions& options);
  void fill(std::string_view input, int64_t step, int64_t first_sample, at::Tensor& into) const;

  TrainableModel model_;
  PreparedTraining prepared_;
  TrainConfig train_;
  Cluster cluster_;
  std::unique_ptr<TokenSource> tokens_;
  Processor& processor_;
  CapturedComputations computations_;
  std::unique_ptr<TimedComputations> timed_;
  std::unique_ptr<Job> job_;
  StartUp start_up_;
  int64_t next_ = 0, updates_ = 0;
};

std::string libtorch_version();

/// What the devices did with the last step, and their memory: a table for people.
std::string device_table(const Plan& plan, const std::vector<DeviceFlight>& flights, int64_t step);

}  // namespace piper
