// What updates of whole parameters have in common (Muon, Adafactor): this device's range of a bucket, directions in
// place of gradients, and the whole direction of each parameter, from this device's own buffer or from what a group of
// devices has gathered.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/executor.h"
#include "runtime/executors/update_scale.h"

namespace piper {

class WholeParameters {
 public:
  struct Parameter {
    std::string name;
    ParameterForm form;
    ElementRange whole;  // of the bucket: what a device has that divides it with no copy
    ElementRange here;   // of that: what this device updates; may be empty
  };

  WholeParameters(const Preparation& prepare, OpId op);

  const std::vector<Parameter>& all() const { return parameters_; }
  const ElementTypes& types() const { return types_; }
  /// None: another update writes directions, or takes the step.
  const std::optional<BufferId>& gradients() const { return gradients_; }
  const std::optional<BufferId>& weights() const { return weights_; }
  const BufferId& state() const { return state_; }
  int64_t count() const { return part_.range().count; }

  c10::ScalarType computes_in() const;
  static OptimizerSettings settings_of(const StepSettings& step, const Parameter& parameter);

  /// Elements that this device updates, in a buffer of the bucket.
  at::Tensor here(const at::Tensor& buffer, const Parameter& parameter) const;
  /// What is kept for them, after so many bytes for each element of the range.
  at::Tensor kept(Frame& frame, int64_t before, DType dtype, const Parameter& parameter) const;
  /// The gradient as updates see it, scaled and cut off.
  at::Tensor gradient(Frame& frame, const GradientScale& scale, const Parameter& parameter) const;
  /// All of a parameter's direction.
  at::Tensor direction(Frame& frame, const Parameter& parameter) const;
  /// Weights become `keep` times what they were, and `rate` times their part of the step more.
  void take_step(Frame& frame, const Parameter& parameter, const at::Tensor& step, double keep, double rate,
                 double ema_decay) const;

 private:
  /// A part of the bucket in the gathered buffer.
  struct Piece {
    LocalShards shards;
    ElementRange range;
  };
  void find_gathered(const Preparation& prepare, const PlanBucket& bucket, BufferId gathered);
  int64_t moments_bytes() const { return moments_ * piper::bytes_of(types_.moments); }

  BucketPart part_;
  ElementTypes types_;
  int64_t moments_ = 0;
  std::optional<BufferId> gradients_, weights_;
  BufferId state_, gathered_;
  std::vector<Parameter> parameters_;
  std::vector<Piece> pieces_;  // in the order of the gathered buffer; none: this device has the whole
};

}  // namespace piper
