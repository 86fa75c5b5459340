// The devices of this process, executing one plan together, step after step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/device_run.h"
#include "runtime/parameters.h"
#include "runtime/stream/failure.h"
#include "runtime/watch.h"

namespace piper {

struct JobOptions {
  RunOptions run;
  /// If something takes too long, the job is stopped, and the error says what every device waits for.
  Timeouts timeout;
  Predictions predictions;
  Judges judges = Judges::All;
  /// If the plan has devices in other processes: sends them the progress of the devices here, and returns that of all.
  /// Called several times a second.
  std::function<std::vector<DeviceProgress>(std::vector<DeviceProgress>)> share_progress;
};

struct StepOutcome {
  double loss = 0;                // mean over all parts of the batch
  double gradient_norm = 0;       // before clipping; NaN where nothing is updated
  bool updates = true;            // false: the step only accumulated gradients
  bool skipped = false;           // not finite: nothing was updated
  std::vector<SliceLoss> losses;  // those that devices of this process computed
  double seconds = 0;
};

class Job {
 public:
  /// One communicator for each device of the plan that runs here. All outlive the job.
  Job(std::shared_ptr<const Plan> plan, const StepConfig& step, Computations& computations,
      std::vector<std::unique_ptr<Communicator>> communicators, JobOptions options = {});
  ~Job();

  const Plan& plan() const { return *plan_; }
  const StepConfig& step_config() const { return step_; }
  const std::vector<DeviceRun*>& devices() const { return device_pointers_; }

  void set_parameters(const std::function<void(const std::string& name, at::Tensor& whole)>& fill);
  at::Tensor parameter(const std::string& name, Kept kept);
  void set_parameter(const std::string& name, Kept kept, const at::Tensor& whole);

  /// Of all devices of the plan, as far as known in this process.
  std::vector<DeviceProgress> progress() const;

  /// Throws RunError. Then the job is over, except after a step that is not finite, which has changed nothing.
  StepOutcome step(const StepSettings& settings);
  /// After an error: whether weights and optimizer state are those after the last complete step, because the devices
  /// here had not begun to update them.
  bool weights_are_whole() const;
  /// Waits for other processes between steps, watched like a step. Throws RunError too.
  void watched(const std::function<void()>& wait);
  /// Also called when the job fails, to end what `watched` waits for.
  void when_it_fails(std::function<void(const std::string& reason)> stop) { failure_.stop_with(std::move(stop)); }
  /// After an error: whether some operation never returned, so that the job's threads cannot end.
  bool stuck() const { return stuck_; }

 private:
  class Watchdog;

  std::shared_ptr<const Plan> plan_;
  const StepConfig step_;
  Computations& computations_;
  const JobOptions options_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  Failure failure_;
  std::vector<std::unique_ptr<DeviceRun>> devices_;
  std::vector<DeviceRun*> device_pointers_;
  std::unique_ptr<Watchdog> watchdog_;
  bool stuck_ = false;
};

}  // namespace piper
