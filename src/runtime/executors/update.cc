// The optimizer on this device's range of a bucket, element by element.
#include "base/invariant.h"
#include "runtime/executor.h"
#include "runtime/executors/update_scale.h"

namespace piper {
namespace {

class UpdateBucket : public Executor {
 public:
  UpdateBucket(const Preparation& prepare, OpId index)
      : processor_(prepare.processor),
        plan_(prepare.plan),
        computations_(prepare.computations),
        scale_(prepare, index) {
    const PlannedOp& op = prepare.op(index);
    bucket_ = prepare.bucket(op.label);
    invariant(bucket_, "an update is about a bucket");
    kind_ = optimizer_of(prepare.step, bucket_->matrices);
    part_ = *part_of(prepare.plan, *bucket_, prepare.device);
    types_ = element_types(prepare.step, bucket_->weights);
    weights_ = *prepare.find(op.writes, Category::Weights);
    gradients_ = *prepare.find(op.reads, Category::Gradients);
    state_ = prepare.find(op.writes, Category::Optimizer).value_or(BufferId());
  }

  void run(Frame& frame) override {
    const std::optional<GradientScale> scale = scale_.of(frame);
    if (!scale) return;
    const StepSettings& settings = frame.settings();
    const ElementRange range = part_.range();
    if (parts_.empty() || settings.groups != groups_) {
      groups_ = settings.groups;
      parts_ = types_.random_rounding ? rounded_parts(plan_, *bucket_, part_, groups_, computations_)
                                      : update_parts(plan_, *bucket_, part_, groups_);
    }
    for (const UpdatePart& part : parts_)
      processor_.update(settings_of(settings_of(part, settings), kind_), types_, settings.updates + 1, *scale,
                        place(frame[weights_], types_.weights, range),
                        place(frame[gradients_], types_.gradients, range),
                        state_.valid() ? bytes_of(frame[state_]) : nullptr, range.count, elements_of(part, settings));
  }

 private:
  std::byte* place(const at::Tensor& buffer, DType dtype, ElementRange range) const {
    return bytes_of(buffer) + offset_in(part_, buffer.numel(), range) * piper::bytes_of(dtype);
  }

  Kernels& processor_;
  const Plan& plan_;
  const Computations& computations_;
  const UpdateScale scale_;
  const PlanBucket* bucket_ = nullptr;
  Optimizer kind_ = Optimizer::AdamW;
  BucketPart part_;
  std::vector<ParameterGroup> groups_;  // for which the parts were found
  std::vector<UpdatePart> parts_;
  ElementTypes types_;
  BufferId weights_, gradients_, state_;
};

}  // namespace

std::unique_ptr<Executor> make_update(const Preparation& prepare, OpId op) {
  const PlanBucket* bucket = prepare.bucket(prepare.op(op).label);
  invariant(bucket, "an update is about a bucket");
  if (bucket->matrices)
    return prepare.step.optimizer == Optimizer::Adafactor ? make_update_factored(prepare, op)
                                                          : make_update_matrices(prepare, op);
  return std::make_unique<UpdateBucket>(prepare, op);
}

}  // namespace piper
