#include "train/loop/diff/diff_training.h"

#include "train/loop/diff/step_recorder.h"

namespace piper {
namespace {

/// The other side of a comparison with a schedule.
class Other {
 public:
  static Result<std::unique_ptr<Other>> make(const SourceFilePtr& config, const TrainConfig& train,
                                             const DiffRequest& request) {
    auto out = std::make_unique<Other>();
    TrainingOptions options;
    options.threads = request.threads;
    options.job.run.after_op = [other = out.get()](int device, OpId op, Frame& frame) {
      other->recorder_->after(device, op, frame);
    };
    PIPER_TRY(out->training_, Training::make(config, train, request.against, options));
    out->recorder_.emplace(out->training_->plan(), out->training_->graph());
    return out;
  }

  Job& job() { return training_->job(); }
  const ModelGraph& graph() const { return training_->graph(); }
  ReferenceStep step(int64_t step, int64_t updates, int64_t losses) {
    StepSettings settings = training_->settings(step, updates);
    settings.not_finite = NotFinite::Skip;
    settings.accumulation = {};
    recorder_->begin(job());
    const StepOutcome outcome = job().step(settings);
    return recorder_->end(job(), outcome, losses);
  }

 private:
  std::optional<StepRecorder> recorder_;
  std::unique_ptr<Training> training_;
};

void take_steps(Training& training, Other* other, const DiffRequest& request, Diff& diff) {
  int64_t updates = 0;
  for (int64_t step = 0; step < request.steps && diff.report().equal(); ++step) {
    StepSettings settings = training.settings(step, updates);
    settings.accumulation = {};  // every step by itself
    Job& job = training.job();
    StepOutcome outcome;
    if (other) {
      if (step > 0) copy_state(job, other->job(), other->graph());
      const ReferenceStep reference = other->step(step, updates, training.plan().losses);
      outcome = diff.step(job, settings, reference, request.against_name);
      diff.compare_weights(job, other->job(), step);
    } else {
      outcome = diff.step(job, settings);
    }
    updates += outcome.skipped ? 0 : 1;
  }
}

}  // namespace

Result<DiffReport> diff_training(const SourceFilePtr& config, const TrainConfig& train, const DiffRequest& request) {
  TrainConfig here = train;
  here.run.on = RunOn::Cpu;  // where values can be looked at as they come
  here.run.devices.reset();
  std::unique_ptr<Diff> diff;
  TrainingOptions options;
  options.threads = request.threads;
  options.job.run.after_op = [&diff](int device, OpId op, Frame& frame) { diff->after(device, op, frame); };
  PIPER_TRY(std::unique_ptr<Training> training, Training::make(config, here, request.schedule, options));
  std::unique_ptr<Other> other;
  if (request.against) {
    PIPER_TRY(other, Other::make(config, here, request));
  }
  const PreparedTraining& prepared = training->run().prepared();
  diff = std::make_unique<Diff>(training->model().step, prepared.captured, prepared.plan, training->model().initialize,
                                request.options);
  try {
    take_steps(*training, other.get(), request, *diff);
  } catch (const RunError&) {  // threads that are stuck cannot be joined
    if (training->job().stuck()) static_cast<void>(training.release());
    if (other && other->job().stuck()) static_cast<void>(other.release());
    throw;
  }
  return diff->report();
}

}  // namespace piper
