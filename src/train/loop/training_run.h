// A run of training in this process, alone or joined with others: its devices, its seed, and the steps it has taken.
// `piper train` and `piper.Trainer` are both made of it.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/flight.h"
#include "runtime/job.h"
#include "train/loop/accumulated_counts.h"
#include "train/loop/captured_computations.h"
#include "train/loop/prepare_training.h"
#include "train/loop/together.h"

namespace piper {

class TimedComputations;

struct TrainingRunOptions {
  uint64_t seed = 0;
  std::optional<double> clip, clip_value;
  NotFinite not_finite = NotFinite::Stop;
  int64_t accumulate = 1;  // steps whose gradients are summed up for one update
  JobOptions job;
  /// What computes for all devices. It outlives the run.
  Processor* processor = &host_processor();
  /// The processes that run the job together; none: all devices are in this one. It outlives the run.
  World* world = nullptr;
  /// An emulated network between devices of this process, as in LocalOptions.
  std::function<double(int64_t)> seconds;
  /// Computations run one at a time and are timed.
  bool timed = false;
  /// Checkpoints will be written: there must be memory for copies of what the devices hold.
  bool saves = false;
  /// The last steps are kept, so that the run survives lost processes: there must be memory for what the devices held
  /// after them. Where the processes are, by rank; none: nothing is kept, or the memory is taken already.
  std::vector<std::string> hosts = {};
};

/// What the processes of every run must have in common. `gpus_joined_by`: with its version.
Identity identity_of(const World& world, const Processor& processor, const std::string& gpus_joined_by, uint64_t seed);

/// Everything that can be refused before devices are made: types of elements, the number of processes (E805), memory
/// (E405). All processes call it.
Checked check_run(const Plan& plan, const StepConfig& step, const TrainingRunOptions& options);

/// How far a run is.
struct RunProgress {
  int64_t steps = 0;
  int64_t samples = 0;  // consumed by them, in the global order: batches may have had other sizes
  int64_t updates = 0;  // fewer where steps were skipped
};

class TrainingRun {
 public:
  /// All processes make it, and call its members in the same order. `initial` fills model buffers that passes write;
  /// parameters are set with `job`.
  TrainingRun(PreparedTraining prepared, const StepConfig& step,
              std::function<void(const std::string& name, at::Tensor& whole)> initial, TrainingRunOptions options);
  ~TrainingRun();

  const PreparedTraining& prepared() const { return prepared_; }
  const Plan& plan() const { return *prepared_.plan; }
  /// None: this process is alone.
  World* world() const { return options_.world; }
  Processor& processor() const { return *options_.processor; }
  CapturedComputations& computations() { return computations_; }
  TimedComputations* timed() { return timed_.get(); }
  Job& job() { return *job_; }
  const TrainingRunOptions& options() const { return options_; }
  JobTurns& turns() { return turns_; }
  /// The communicators of the devices that are here, for one of its jobs (`JobTurns`).
  std::vector<std::unique_ptr<Communicator>> join_devices(int devices, int number, JobOptions& job);
  /// When that job fails, nothing waits for other processes any more.
  void end_with(Job& job);

  /// Before the first step: the processes compare clocks, and from now on the silence of one is noticed.
  void begin();
  /// None: this process is alone, or the run has not begun.
  const Together* together() const { return together_ ? &*together_ : nullptr; }

  /// What a step is given after so many updates: its seed, and what holds for all. Optimizer and inputs are the
  /// caller's to add.
  StepSettings settings(int64_t step, int64_t updates) const;
  /// The same for the next step.
  StepSettings settings() const { return settings(progress_.steps, progress_.updates); }
  /// The next step. E105, and nothing has changed: its gradients cannot be added to those of the steps before
  /// (AccumulatedCounts). Throws RunError.
  Result<StepOutcome> step(StepSettings settings);
  /// What the model says besides its loss.
  const std::vector<std::string>& metric_names() const { return prepared_.captured->slices()[0].operators.metrics; }
  /// These of a step, means over the batch. All processes call it.
  std::vector<double> metrics_of(const StepOutcome& outcome);
  /// The part of all rows for experts that went in further rounds, since this was asked last. None: none are exchanged.
  /// All processes call it.
  std::optional<double> further_rows();
  const RunProgress& progress() const { return progress_; }
  int64_t steps() const { return progress_.steps; }
  int64_t samples() const { return progress_.samples; }
  int64_t updates() const { return progress_.updates; }
  void set_progress(const RunProgress& progress) { progress_ = progress; }

  /// What the processes tell each other between steps. One that is alone agrees with itself.
  int greatest(int here);
  bool anywhere(bool here) { return greatest(here ? 1 : 0) > 0; }
  /// The sums of all processes' elements, at every one.
  void sum(std::span<std::byte> elements, DataType dtype);
  /// The equal parts of all processes, in their order, at every one.
  void all_gather(std::span<const std::byte> part, std::span<std::byte> whole);
  /// What all devices keep for a parameter, whole, on the host. Undefined: nothing is kept.
  at::Tensor parameter(const std::string& name, Kept kept);
  /// Memory of the fullest device of this process, since the run began.
  int64_t peak_bytes() const;
  /// Of all devices, on the clock of rank 0 and only there; elsewhere nothing.
  std::vector<DeviceFlight> flights();

 private:
  std::vector<int64_t> sizes_of(const std::string& name, Kept kept) const;
  const PreparedTraining prepared_;
  const TrainingRunOptions options_;
  CapturedComputations computations_;
  AccumulatedCounts counts_;
  std::unique_ptr<TimedComputations> timed_;
  JobTurns turns_;
  std::unique_ptr<Job> job_;
  std::optional<Together> together_;
  RunProgress progress_;
  std::array<double, 2> rows_ =
      {};  // for experts, and of them in further rounds, here, when `further_rows` was asked last
};

}  // namespace piper
