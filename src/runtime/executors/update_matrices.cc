// Muon on this device's range of a bucket of matrices: directions take the place of gradients; then every matrix that
// the range has elements of is seen whole, from this device's own buffer or from what a group of devices has gathered.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/invariant.h"
#include "runtime/executor.h"
#include "runtime/executors/update_scale.h"
#include "runtime/parameters.h"
#include "runtime/update_matrix.h"

namespace piper {
namespace {

class UpdateMatrices : public Executor {
 public:
  UpdateMatrices(const Preparation& prepare, OpId index) : scale_(prepare, index) {
    const PlannedOp& op = prepare.op(index);
    const PlanBucket& bucket = *prepare.bucket(op.label);
    part_ = *part_of(prepare.plan, bucket, prepare.device);
    types_ = element_types(prepare.step, bucket.weights);
    gradients_ = prepare.find(op.reads, Category::Gradients);
    weights_ = prepare.find(op.writes, Category::Weights);
    state_ = *prepare.find(op.writes, Category::Optimizer);
    if (!gradients_) find_gathered(prepare, bucket, *prepare.find(op.reads, Category::Communication));
    int64_t offset = 0;
    for (const PlanParameter& parameter : bucket.parameters) {
      const ElementRange whole = {offset, parameter.elements}, here = common(whole, part_.range());
      offset += parameter.elements;
      if (here.count == 0) continue;
      const std::string& name = prepare.plan.names[parameter.name];
      matrices_.push_back({name, prepare.computations.parameter(name), whole, here});
      invariant(matrices_.back().form.sizes.size() == 2, "a matrix has two dimensions");
    }
  }

  void run(Frame& frame) override {
    const std::optional<GradientScale> scale = scale_.of(frame);
    if (!scale) return;
    for (const Matrix& matrix : matrices_) {
      const StepSettings& step = frame.settings();
      const std::optional<size_t> group = group_of(step.groups, matrix.name);
      const OptimizerSettings settings = group ? settings_of(step.optimizer, step.groups[*group]) : step.optimizer;
      if (gradients_) find_direction(frame, settings, *scale, matrix);
      if (weights_) update(frame, settings, matrix);
    }
  }

 private:
  struct Matrix {
    std::string name;
    ParameterForm form;
    ElementRange whole;  // of the bucket: what a device has that divides it with no copy
    ElementRange here;   // of that: what this device updates
  };
  /// A part of the bucket in the gathered buffer.
  struct Piece {
    LocalShards shards;
    ElementRange range;
  };

  void find_gathered(const Preparation& prepare, const PlanBucket& bucket, BufferId gathered) {
    gathered_ = gathered;
    for (const PlannedOp& op : prepare.program.ops)
      if (op.communication.valid() && std::ranges::find(op.writes, gathered) != op.writes.end())
        for (const int device : prepare.members(prepare.communication(op))) {
          const BucketPart part = *part_of(prepare.plan, bucket, device);
          pieces_.push_back({part.shards, part.range()});
        }
    invariant(!pieces_.empty(), "what is updated from pieces was gathered");
  }

  c10::ScalarType computes_in() const { return types_.moments == DType::Float64 ? at::kDouble : at::kFloat; }

  at::Tensor here(const at::Tensor& buffer, const Matrix& matrix) const {
    return buffer.narrow(0, offset_in(part_, buffer.numel(), matrix.here), matrix.here.count);
  }
  /// What is kept for its elements, after so many bytes for each element of the range.
  at::Tensor kept(Frame& frame, int64_t before, DType dtype, const Matrix& matrix) const {
    const int64_t count = part_.range().count;
    return frame[state_]
        .narrow(0, before * count, count * piper::bytes_of(dtype))
        .view(scalar_type(dtype))
        .narrow(0, matrix.here.begin - part_.range().begin, matrix.here.count);
  }

  void find_direction(Frame& frame, const OptimizerSettings& settings, const GradientScale& scale,
                      const Matrix& matrix) const {
    const at::Tensor gradient = here(frame[*gradients_], matrix);
    at::Tensor g = gradient.to(computes_in(), /*non_blocking=*/false, /*copy=*/true).mul_(scale.factor);
    if (scale.largest) g.clamp_(-*scale.largest, *scale.largest);
    if (types_.master_gradients) {
      int64_t before = piper::bytes_of(types_.moments);
      for (const std::optional<DType>& copy : {types_.master, types_.ema}) before += copy ? piper::bytes_of(*copy) : 0;
      g = kept(frame, before, *types_.master_gradients, matrix).copy_(g).to(computes_in());
    }
    const at::Tensor stored = kept(frame, 0, types_.moments, matrix);
    const at::Tensor momentum = stored.to(computes_in()).lerp_(g, 1 - settings.momentum);
    stored.copy_(momentum);
    gradient.copy_(settings.nesterov ? g.lerp_(momentum, settings.momentum) : momentum);
  }

  /// All of a matrix's direction.
  at::Tensor direction(Frame& frame, const Matrix& matrix) const {
    if (gradients_) return frame[*gradients_].narrow(0, matrix.whole.begin, matrix.whole.count).view(matrix.form.sizes);
    const at::Tensor& gathered = frame[gathered_];
    const at::Tensor out = at::empty(matrix.form.sizes, gathered.options());
    std::vector<std::pair<LocalShards, at::Tensor>> shards;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      const ElementRange range = common(matrix.whole, piece.range);
      if (range.count == 0) continue;
      auto shard = std::ranges::find_if(shards, [&](const auto& known) { return known.first.of == piece.shards.of; });
      if (shard == shards.end())
        shard = shards.insert(shard, {piece.shards, at::empty({matrix.whole.count}, gathered.options())});
      const int64_t begin = static_cast<int64_t>(i) * piece.range.count + range.begin - piece.range.begin;
      shard->second.narrow(0, range.begin - matrix.whole.begin, range.count)
          .copy_(gathered.narrow(0, begin, range.count));
    }
    for (const auto& [of, elements] : shards)
      put_shard(out, matrix.form, of, elements.view(matrix.form.local_sizes(of)));
    return out;
  }

  void update(Frame& frame, const OptimizerSettings& settings, const Matrix& matrix) const {
    const std::vector<int64_t>& sizes = matrix.form.sizes;
    const at::Tensor step =
        orthogonal(direction(frame, matrix), settings.newton_schulz_steps, types_.moments).contiguous();
    const at::Tensor piece = shard_of(step, matrix.form, part_.shards)
                                 .reshape({-1})
                                 .narrow(0, matrix.here.begin - matrix.whole.begin, matrix.here.count)
                                 .to(computes_in());
    const at::Tensor weights = here(frame[*weights_], matrix);
    const int64_t moment = piper::bytes_of(types_.moments);
    const at::Tensor precise = types_.master ? kept(frame, moment, *types_.master, matrix) : weights;
    const at::Tensor w = precise.to(computes_in())
                             .mul_(1 - settings.learning_rate * settings.weight_decay)
                             .add_(piece, -muon_rate(settings, sizes[0], sizes[1]));
    precise.copy_(w);
    weights.copy_(w);
    if (!types_.ema) return;
    kept(frame, moment + (types_.master ? piper::bytes_of(*types_.master) : 0), *types_.ema, matrix)
        .lerp_(w.to(scalar_type(*types_.ema)), 1 - settings.ema_decay);
  }

  const UpdateScale scale_;
  BucketPart part_;
  ElementTypes types_;
  std::optional<BufferId> gradients_, weights_;  // none: another update writes directions, or takes the step
  BufferId state_, gathered_;
  std::vector<Matrix> matrices_;
  std::vector<Piece> pieces_;  // in the order of the gathered buffer; none: this device has the whole
};

}  // namespace

std::unique_ptr<Executor> make_update_matrices(const Preparation& prepare, OpId op) {
  return std::make_unique<UpdateMatrices>(prepare, op);
}

}  // namespace piper
