#include "runtime/parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/invariant.h"
#include "model/whole_state.h"
#include "plan/checkpoint_memory.h"

namespace piper {
namespace {

std::optional<BufferId> lasting(const DeviceRun& device, const PlanBucket& bucket, Category category) {
  const auto& buffers = device.program().buffers;
  for (const BufferId b : buffers.ids())
    if (buffers[b].persistent && buffers[b].category == category && buffers[b].label.name == bucket.name) return b;
  return std::nullopt;
}

/// Calls visit(view of the whole, view of the shard) for everything that a shard has of a parameter: of every block of
/// a factor that is divided a part. Both are seen by their factors; without a shard only the whole.
using VisitBlocks = std::function<void(const at::Tensor& whole, const at::Tensor& shard)>;
void each_block(const at::Tensor& whole, const at::Tensor& shard, const ParameterForm& form, const LocalShards& shards,
                size_t kind, const VisitBlocks& visit) {
  while (kind < shards.of.size() && shards.of[kind].count == 1) ++kind;
  if (kind == shards.of.size()) return visit(whole, shard);
  const auto& [dim, factor, known_blocks] = form.along.of[kind];
  const auto [count, index] = shards.of[kind];
  const int64_t along = static_cast<int64_t>(factor);
  int64_t begin = 0, begin_here = 0;
  for (const int64_t block : known_blocks.empty() ? std::vector{form.factors[factor]} : known_blocks) {
    const int64_t size = block / count;
    each_block(whole.narrow(along, begin + index * size, size),
               shard.defined() ? shard.narrow(along, begin_here, size) : shard, form, shards, kind + 1, visit);
    begin += block;
    begin_here += size;
  }
}

std::vector<int64_t> local_factors(const ParameterForm& form, const LocalShards& shards) {
  std::vector<int64_t> out = form.factors;
  for (size_t k = 0; k < shards.of.size(); ++k)
    if (shards.of[k].count > 1) out[form.along.of[k].factor] /= shards.of[k].count;
  return out;
}

/// Elements of a bucket that a buffer of this many holds.
ElementRange held(const BucketPart& part, int64_t elements) {
  return elements == part.padded ? ElementRange{0, part.padded} : part.owned();
}

/// A flat view of what is kept for the bucket on the device.
at::Tensor kept_in(DeviceRun& device, const PlanBucket& bucket, const BucketPart& part, const StepConfig& step,
                   Kept kept) {
  if (kept == Kept::Weight || kept == Kept::Gradient) {
    const auto buffer = lasting(device, bucket, kept == Kept::Weight ? Category::Weights : Category::Gradients);
    return buffer ? device.frame()[*buffer] : at::Tensor();
  }
  const auto buffer = lasting(device, bucket, Category::Optimizer);
  const ElementTypes types = element_types(step, bucket.weights);
  const std::optional<DType> dtype = kept_dtype(bucket, step, kept);
  if (!buffer || !dtype) return {};
  const int64_t count = part.range().count;
  if (kept == Kept::Whole) {
    const at::Tensor& state = device.frame()[*buffer];
    const int64_t begin = whole_state_begin(types, optimizer_of(step, bucket.matrices), count);
    return state.narrow(0, begin, state.numel() - begin).view(scalar_type(*dtype));
  }
  int64_t before = kept == Kept::Moment1 ? 0 : kept == Kept::Moment2 ? 1 : moments(optimizer_of(step, bucket.matrices));
  before *= bytes_of(types.moments);
  if (kept == Kept::Ema && types.master) before += bytes_of(*types.master);
  return device.frame()[*buffer].narrow(0, before * count, count * bytes_of(*dtype)).view(scalar_type(*dtype));
}

}  // namespace

std::optional<DType> kept_dtype(const PlanBucket& bucket, const StepConfig& step, Kept kept) {
  const ElementTypes types = element_types(step, bucket.weights);
  const int64_t moments = piper::moments(optimizer_of(step, bucket.matrices));
  switch (kept) {
    case Kept::Weight:
      return bucket.weights;
    case Kept::Gradient:
      return bucket.gradients;
    case Kept::Moment1:
      return moments > 0 ? std::optional(types.moments) : std::nullopt;
    case Kept::Moment2:
      return moments > 1 ? std::optional(types.moments) : std::nullopt;
    case Kept::Master:
      return types.master;
    case Kept::Ema:
      return types.ema;
    case Kept::Whole:
      return bucket.matrices && step.optimizer == Optimizer::Adafactor ? std::optional(types.moments) : std::nullopt;
  }
  internal_error("something else is kept");
}

ElementRange common(ElementRange a, ElementRange b) {
  const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end(), b.end());
  return {begin, std::max<int64_t>(end - begin, 0)};
}

KeptElements kept_elements(DeviceRun& device, const PlanBucket& bucket, const BucketPart& part, const StepConfig& step,
                           Kept kept) {
  const at::Tensor flat = kept_in(device, bucket, part, step, kept);
  if (!flat.defined()) return {};
  return {flat, kept == Kept::Whole ? ElementRange{0, flat.numel()} : held(part, flat.numel())};
}

ElementRange whole_state_of(const Plan& plan, const PlanBucket& bucket, const StepConfig& step,
                            const Computations& computations, const std::string& name) {
  ElementRange out;
  for (const PlanParameter& parameter : bucket.parameters) {
    const std::string& here = plan.names[parameter.name];
    out.count = whole_state_count(optimizer_of(step, bucket.matrices), computations.parameter(here).sizes);
    if (here == name) return out;
    out.begin += out.count;
  }
  internal_error("the bucket has the parameter " + name);
}

at::Tensor lasting_weights(DeviceRun& device, const PlanBucket& bucket) {
  const auto buffer = lasting(device, bucket, Category::Weights);
  return buffer ? device.frame()[*buffer] : at::Tensor();
}

std::optional<ParameterPlace> place_of(const Plan& plan, const std::string& name) {
  for (const BucketId b : plan.buckets.ids()) {
    int64_t offset = 0;
    for (const PlanParameter& parameter : plan.buckets[b].parameters) {
      if (plan.names[parameter.name] == name) return ParameterPlace{b, {offset, parameter.elements}};
      offset += parameter.elements;
    }
  }
  return {};
}

std::map<std::string, ParameterPlace> places_of(const Plan& plan) {
  std::map<std::string, ParameterPlace> out;
  for (const BucketId b : plan.buckets.ids()) {
    int64_t offset = 0;
    for (const PlanParameter& parameter : plan.buckets[b].parameters) {
      out.emplace(plan.names[parameter.name], ParameterPlace{b, {offset, parameter.elements}});
      offset += parameter.elements;
    }
  }
  return out;
}

at::Tensor shard_of(const at::Tensor& whole, const ParameterForm& form, const LocalShards& shards) {
  if (shards.counts() == ShardCounts()) return whole;
  std::vector<at::Tensor> blocks;
  const auto keep = [&](const at::Tensor& block, const at::Tensor&) { blocks.push_back(block); };
  each_block(whole.view(form.factors), {}, form, shards, 0, keep);
  if (blocks.size() == 1) return blocks[0];
  const at::Tensor out = at::empty(local_factors(form, shards), whole.options());
  each_block(whole.view(form.factors), out, form, shards, 0,
             [](const at::Tensor& from, const at::Tensor& to) { to.copy_(from); });
  return out;
}

void set_weights(const Plan& plan, const PlanBucket& bucket, Computations& computations,
                 const std::vector<DeviceRun*>& devices,
                 const std::function<void(const std::string& name, at::Tensor& whole)>& fill) {
  const bool here = std::ranges::any_of(
      devices, [&](DeviceRun* device) { return part_of(plan, bucket, device->device()).has_value(); });
  if (!here) return;
  int64_t offset = 0;
  for (const PlanParameter& parameter : bucket.parameters) {
    const std::string& name = plan.names[parameter.name];
    const ParameterForm form = computations.parameter(name);
    at::Tensor whole = at::empty(form.sizes, c10::TensorOptions().dtype(scalar_type(form.dtype)));
    fill(name, whole);
    for (DeviceRun* device : devices) {
      const auto part = part_of(plan, bucket, device->device());
      if (!part) continue;
      const at::Tensor flat = lasting_weights(*device, bucket);
      const ElementRange kept = held(*part, flat.numel());
      const ElementRange range = common({offset, parameter.elements}, kept);
      if (range.count == 0) continue;
      const at::Tensor piece = shard_of(whole, form, part->shards).reshape({-1});
      flat.narrow(0, range.begin - kept.begin, range.count).copy_(piece.narrow(0, range.begin - offset, range.count));
    }
    offset += parameter.elements;
  }
}

void put_shard(const at::Tensor& whole, const ParameterForm& form, const LocalShards& shards, const at::Tensor& shard) {
  if (shards.counts() == ShardCounts()) {
    if (whole.data_ptr() != shard.data_ptr()) whole.copy_(shard);
    return;
  }
  each_block(whole.view(form.factors), shard.view(local_factors(form, shards)), form, shards, 0,
             [](const at::Tensor& to, const at::Tensor& from) {
               if (to.data_ptr() != from.data_ptr()) to.copy_(from);
             });
}

void set_parameters(const Plan& plan, const StepConfig& step, Computations& computations,
                    const std::vector<DeviceRun*>& devices,
                    const std::function<void(const std::string& name, at::Tensor& whole)>& fill) {
  for (const PlanBucket& bucket : plan.buckets) {
    set_weights(plan, bucket, computations, devices, fill);
    for (DeviceRun* device : devices) {
      const auto part = part_of(plan, bucket, device->device());
      const auto state = part ? lasting(*device, bucket, Category::Optimizer) : std::nullopt;
      if (!state) continue;
      const at::Tensor weights = lasting_weights(*device, bucket);
      const ElementRange range = part->range();
      device->processor().initialize_state(
          element_types(step, bucket.weights), optimizer_of(step, bucket.matrices),
          bytes_of(weights) + offset_in(*part, weights.numel(), range) * bytes_of(bucket.weights),
          bytes_of(device->frame()[*state]), range.count);
      if (const at::Tensor whole = kept_in(*device, bucket, *part, step, Kept::Whole); whole.defined()) whole.zero_();
    }
  }
  for (DeviceRun* device : devices) device->processor().finish();
}

at::Tensor get_parameter(const Plan& plan, const StepConfig& step, Computations& computations,
                         const std::vector<DeviceRun*>& devices, const std::string& name, Kept kept) {
  const auto place = place_of(plan, name);
  if (!place) internal_error("the plan has no parameter " + name);
  const ParameterForm form = computations.parameter(name);
  const PlanBucket& bucket = plan.buckets[place->bucket];
  at::Tensor whole;
  if (kept == Kept::Whole) {
    if (!kept_dtype(bucket, step, kept)) return {};
    const ElementRange range = whole_state_of(plan, bucket, step, computations, name);
    for (DeviceRun* device : devices)
      if (device->device() == writer_of_whole_state(plan, bucket))
        whole = kept_in(*device, bucket, *part_of(plan, bucket, device->device()), step, kept)
                    .narrow(0, range.begin, range.count)
                    .to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
    return whole;
  }
  for (DeviceRun* device : devices) {
    const auto part = part_of(plan, bucket, device->device());
    if (!part || !part->counts()) continue;
    const auto [flat, here] = kept_elements(*device, bucket, *part, step, kept);
    if (!flat.defined()) return {};
    if (!whole.defined()) whole = at::zeros(form.sizes, flat.options().device(c10::kCPU));
    const ElementRange range = common(common(place->range, here), part->range());
    if (range.count == 0) continue;
    const at::Tensor piece = shard_of(whole, form, part->shards).contiguous();  // a copy where the piece is not
    piece.view({-1})
        .narrow(0, range.begin - place->range.begin, range.count)
        .copy_(flat.narrow(0, range.begin - here.begin, range.count));
    put_shard(whole, form, part->shards, piece);
  }
  return whole;
}

void set_parameter(const Plan& plan, const StepConfig& step, Computations& computations,
                   const std::vector<DeviceRun*>& devices, const std::string& name, Kept kept,
                   const at::Tensor& whole) {
  const auto place = place_of(plan, name);
  if (!place) return;
  const ParameterForm form = computations.parameter(name);
  const PlanBucket& bucket = plan.buckets[place->bucket];
  for (DeviceRun* device : devices) {
    const auto part = part_of(plan, bucket, device->device());
    const auto [flat, here] = part ? kept_elements(*device, bucket, *part, step, kept) : KeptElements{};
    if (!flat.defined()) continue;
    if (kept == Kept::Whole) {
      const ElementRange range = whole_state_of(plan, bucket, step, computations, name);
      flat.narrow(0, range.begin, range.count).copy_(whole.reshape({-1}));
      continue;
    }
    const ElementRange range = common(common(place->range, here), part->range());
    if (range.count == 0) continue;
    const at::Tensor piece = shard_of(whole, form, part->shards).reshape({-1});
    flat.narrow(0, range.begin - here.begin, range.count)
        .copy_(piece.narrow(0, range.begin - place->range.begin, range.count));
  }
}

std::vector<std::pair<std::string, at::Tensor>> weights_of(const Plan& plan, DeviceRun& device) {
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (const PlanBucket& bucket : plan.buckets) {
    const auto part = part_of(plan, bucket, device.device());
    if (!part || part->shards.counts() != ShardCounts()) continue;
    const at::Tensor flat = device.frame()[*lasting(device, bucket, Category::Weights)];
    if (flat.numel() != part->padded) continue;
    int64_t offset = 0;
    for (const PlanParameter& parameter : bucket.parameters) {
      out.emplace_back(plan.names[parameter.name], flat.narrow(0, offset, parameter.elements));
      offset += parameter.elements;
    }
  }
  return out;
}

}  // namespace piper
