#include "train_loop/diffed.h"

#include "train_loop/apparatus.h"

namespace piper {

DiffReport diffed(const TrainableModel& model, const CapturedModel& captured, std::shared_ptr<const Plan> plan,
                  const TrainSettings& settings, const DiffOptions& options) {
  TrainSettings watched = settings;
  std::unique_ptr<Diff> diff;
  watched.job.run.after_op = [&](int device, OpId op, Frame& frame) { diff->after(device, op, frame); };
  const Apparatus apparatus(model, captured, std::move(plan), watched);
  const std::shared_ptr<const CapturedModel> unowned(std::shared_ptr<void>(), &captured);
  diff = std::make_unique<Diff>(model.step, unowned, apparatus.plan, model.initialize, options);
  for (int64_t step = 0; step < settings.steps && diff->report().equal(); ++step)
    diff->step(*apparatus.job, step_settings(model, settings, step));
  return diff->report();
}

}  // namespace piper
