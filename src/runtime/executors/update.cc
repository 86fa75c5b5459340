// The optimiser on this device's range of a bucket.
#include <fmt/format.h>

#include <cmath>

#include "base/invariant.h"
#include "runtime/executor.h"
#include "runtime/stream/failure.h"
#include "runtime/update_parts.h"

namespace piper {
namespace {

class UpdateBucket : public Executor {
 public:
  UpdateBucket(const Preparation& prepare, OpId index)
      : processor_(prepare.processor),
        plan_(prepare.plan),
        local_(prepare, prepare.op(index).reads),
        losses_(static_cast<double>(prepare.plan.losses)) {
    const PlannedOp& op = prepare.op(index);
    bucket_ = prepare.bucket(op.label);
    invariant(bucket_, "an update is about a bucket");
    part_ = *part_of(prepare.plan, *bucket_, prepare.device);
    types_ = element_types(prepare.step, bucket_->weights);
    weights_ = *prepare.find(op.writes, Category::Weights);
    gradients_ = *prepare.find(op.reads, Category::Gradients);
    state_ = prepare.find(op.writes, Category::Optimizer).value_or(BufferId());
  }

  void run(Frame& frame) override {
    if (!frame.scalars_known) {
      frame.scalars = local_.sum(frame);
      frame.scalars_known = true;
    }
    const StepSettings& settings = frame.settings();
    const double norm = std::sqrt(frame.scalars.squares) / losses_;
    if (!std::isfinite(frame.scalars.loss) || !std::isfinite(norm)) {
      if (settings.not_finite == NotFinite::Skip) return;
      throw RunError(RunProblem::NotFinite,
                     fmt::format("step {} is not finite: loss {}, norm of the gradients {}", settings.step,
                                 frame.scalars.loss / losses_, std::abs(norm)));  // a NaN has a sign
    }
    const GradientScale scale = gradient_scale(settings, norm, losses_);
    const ElementRange range = part_.range();
    if (parts_.empty() || settings.groups != groups_) {
      groups_ = settings.groups;
      parts_ = update_parts(plan_, *bucket_, part_, groups_);
    }
    for (const UpdatePart& part : parts_)
      processor_.update(settings_of(part, settings), types_, settings.updates + 1, scale,
                        place(frame[weights_], types_.weights, range),
                        place(frame[gradients_], types_.gradients, range),
                        state_.valid() ? bytes_of(frame[state_]) : nullptr, range.count, part.part);
  }

 private:
  std::byte* place(const at::Tensor& buffer, DType dtype, ElementRange range) const {
    return bytes_of(buffer) + offset_in(part_, buffer.numel(), range) * piper::bytes_of(dtype);
  }

  Kernels& processor_;
  const Plan& plan_;
  const PlanBucket* bucket_ = nullptr;
  LocalScalars local_;
  double losses_;
  BucketPart part_;
  std::vector<ParameterGroup> groups_;  // for which the parts were found
  std::vector<UpdatePart> parts_;
  ElementTypes types_;
  BufferId weights_, gradients_, state_;
};

}  // namespace

std::unique_ptr<Executor> make_update(const Preparation& prepare, OpId op) {
  return std::make_unique<UpdateBucket>(prepare, op);
}

}  // namespace piper
