#include "runtime/executors/whole_parameters.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/invariant.h"
#include "runtime/parameters.h"

namespace piper {

WholeParameters::WholeParameters(const Preparation& prepare, OpId index) {
  const PlannedOp& op = prepare.op(index);
  const PlanBucket& bucket = *prepare.bucket(op.label);
  part_ = *part_of(prepare.plan, bucket, prepare.device);
  types_ = element_types(prepare.step, bucket.weights);
  moments_ = moments(prepare.step.optimizer);
  gradients_ = prepare.find(op.reads, Category::Gradients);
  weights_ = prepare.find(op.writes, Category::Weights);
  state_ = *prepare.find(op.writes, Category::Optimizer);
  if (!gradients_) find_gathered(prepare, bucket, *prepare.find(op.reads, Category::Communication));
  int64_t offset = 0;
  for (const PlanParameter& parameter : bucket.parameters) {
    const ElementRange whole = {offset, parameter.elements};
    const std::string& name = prepare.plan.names[parameter.name];
    parameters_.push_back({name, prepare.computations.parameter(name), whole, common(whole, part_.range())});
    offset += parameter.elements;
  }
}

void WholeParameters::find_gathered(const Preparation& prepare, const PlanBucket& bucket, BufferId gathered) {
  gathered_ = gathered;
  for (const PlannedOp& op : prepare.program.ops)
    if (op.communication.valid() && std::ranges::find(op.writes, gathered) != op.writes.end())
      for (const int device : prepare.members(prepare.communication(op))) {
        const BucketPart part = *part_of(prepare.plan, bucket, device);
        pieces_.push_back({part.shards, part.range()});
      }
  invariant(!pieces_.empty(), "what is updated from pieces was gathered");
}

c10::ScalarType WholeParameters::computes_in() const {
  return scalar_type(types_.arithmetic());
}

OptimizerSettings WholeParameters::settings_of(const StepSettings& step, const Parameter& parameter) {
  const std::optional<size_t> group = group_of(step.groups, parameter.name);
  return group ? piper::settings_of(step.optimizer, step.groups[*group]) : step.optimizer;
}

at::Tensor WholeParameters::here(const at::Tensor& buffer, const Parameter& parameter) const {
  return buffer.narrow(0, offset_in(part_, buffer.numel(), parameter.here), parameter.here.count);
}

at::Tensor WholeParameters::kept(Frame& frame, int64_t before, DType dtype, const Parameter& parameter) const {
  return frame[state_]
      .narrow(0, before * count(), count() * piper::bytes_of(dtype))
      .view(scalar_type(dtype))
      .narrow(0, parameter.here.begin - part_.range().begin, parameter.here.count);
}

at::Tensor WholeParameters::gradient(Frame& frame, const GradientScale& scale, const Parameter& parameter) const {
  at::Tensor g =
      here(frame[*gradients_], parameter).to(computes_in(), /*non_blocking=*/false, /*copy=*/true).mul_(scale.factor);
  if (scale.largest) g.clamp_(-*scale.largest, *scale.largest);
  if (!types_.master_gradients) return g;
  int64_t before = moments_bytes();
  for (const std::optional<DType>& copy : {types_.master, types_.ema}) before += copy ? piper::bytes_of(*copy) : 0;
  return kept(frame, before, *types_.master_gradients, parameter).copy_(g).to(computes_in());
}

at::Tensor WholeParameters::direction(Frame& frame, const Parameter& parameter) const {
  if (gradients_)
    return frame[*gradients_].narrow(0, parameter.whole.begin, parameter.whole.count).view(parameter.form.sizes);
  const at::Tensor& gathered = frame[gathered_];
  const at::Tensor out = at::empty(parameter.form.sizes, gathered.options());
  std::vector<std::pair<LocalShards, at::Tensor>> shards;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    const ElementRange range = common(parameter.whole, piece.range);
    if (range.count == 0) continue;
    auto shard = std::ranges::find_if(shards, [&](const auto& known) { return known.first.of == piece.shards.of; });
    if (shard == shards.end())
      shard = shards.insert(shard, {piece.shards, at::empty({parameter.whole.count}, gathered.options())});
    const int64_t begin = static_cast<int64_t>(i) * piece.range.count + range.begin - piece.range.begin;
    shard->second.narrow(0, range.begin - parameter.whole.begin, range.count)
        .copy_(gathered.narrow(0, begin, range.count));
  }
  for (const auto& [of, elements] : shards)
    put_shard(out, parameter.form, of, elements.view(parameter.form.local_sizes(of)));
  return out;
}

void WholeParameters::take_step(Frame& frame, const Parameter& parameter, const at::Tensor& step, double keep,
                                double rate, double ema_decay) const {
  const at::Tensor piece = shard_of(step, parameter.form, part_.shards)
                               .reshape({-1})
                               .narrow(0, parameter.here.begin - parameter.whole.begin, parameter.here.count)
                               .to(computes_in());
  const at::Tensor weights = here(frame[*weights_], parameter);
  const at::Tensor precise = types_.master ? kept(frame, moments_bytes(), *types_.master, parameter) : weights;
  const at::Tensor w = precise.to(computes_in(), /*non_blocking=*/false, /*copy=*/true).mul_(keep).add_(piece, rate);
  precise.copy_(w);
  weights.copy_(w);
  if (!types_.ema) return;
  const int64_t before = moments_bytes() + (types_.master ? piper::bytes_of(*types_.master) : 0);
  kept(frame, before, *types_.ema, parameter).lerp_(w.to(scalar_type(*types_.ema)), 1 - ema_decay);
}

}  // namespace piper
