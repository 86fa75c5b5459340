#include "train/loop/checkpoint/model_state.h"

#include <algorithm>

#include "base/invariant.h"
#include "runtime/element_runs.h"
#include "train/loop/checkpoint/stored_dtype.h"

namespace piper {
namespace {

ParameterPlace must_place(const Plan& plan, const std::string& parameter) {
  const auto place = place_of(plan, parameter);
  if (!place) internal_error("the plan has no parameter " + parameter);
  return *place;
}

}  // namespace

bool has_state(const Plan& plan, const PlanBucket& bucket) {
  return std::ranges::any_of(plan.templates, [&](const PlanTemplate& program) {
    return std::ranges::any_of(program.buffers, [&](const PlanBuffer& buffer) {
      return buffer.persistent && buffer.category == Category::Optimizer && buffer.label.name == bucket.name;
    });
  });
}

std::vector<SavedName> own_names(const TrainableModel& model) {
  std::vector<SavedName> out;
  for (const NamedTensor& parameter : model.meta.parameters) out.push_back({parameter.name, parameter.name});
  return out;
}

std::string_view suffix(Kept kept, Optimizer optimizer) {
  switch (kept) {
    case Kept::Moment1:
      return optimizer == Optimizer::AdamW ? "exp_avg" : "momentum_buffer";
    case Kept::Moment2:
      return "exp_avg_sq";
    case Kept::Master:
      return "master";
    case Kept::Weight:
    case Kept::Gradient:
      break;
  }
  internal_error("weights have no suffix, and gradients are not in checkpoints");
}

ModelState model_state(const Plan& plan, const StepConfig& step, const Computations& computations,
                       const std::vector<SavedName>& names) {
  ModelState out;
  for (const auto& [name, stored] : names) {
    const auto place = place_of(plan, name);
    if (!place) continue;  // nothing of the step uses it
    const PlanBucket& bucket = plan.buckets[place->bucket];
    const std::vector<int64_t> sizes = computations.parameter(name).sizes;
    out.weights.push_back({name, Kept::Weight, {stored, piper::stored(bucket.weights), sizes}});
    if (!has_state(plan, bucket)) continue;
    const ElementTypes types = element_types(step, bucket.weights);
    const auto add = [&](Kept kept, DType dtype) {
      const std::string file_name = stored + "." + std::string(suffix(kept, step.optimizer));
      out.optimizer.push_back({name, kept, {file_name, piper::stored(dtype), sizes}});
    };
    if (moments(step.optimizer) > 0) add(Kept::Moment1, types.moments);
    if (moments(step.optimizer) > 1) add(Kept::Moment2, types.moments);
    if (types.master) add(Kept::Master, *types.master);
  }
  return out;
}

ElementRange written_range(const BucketPart& part) {
  if (part.holder != 0 || part.rank_in_sample != 0) return {};
  const int64_t size = (part.elements + part.copies - 1) / part.copies;
  const int64_t begin = std::min(part.copy * size, part.elements);
  return {begin, std::min(size, part.elements - begin)};
}

std::vector<StatePiece> pieces_of(const Plan& plan, const Computations& computations, const std::string& parameter) {
  const ParameterPlace place = must_place(plan, parameter);
  const PlanBucket& bucket = plan.buckets[place.bucket];
  const ParameterForm form = computations.parameter(parameter);
  std::vector<StatePiece> out;
  for (const int device : plan.partitions[bucket.holders[0].copies].members) {
    const BucketPart part = *part_of(plan, bucket, device);
    const ElementRange written = common(written_range(part), place.range);
    for (const ElementRun& run : element_runs(form, part.shards, {written.begin - place.range.begin, written.count}))
      out.push_back({device, run.whole, run.shard + place.range.begin, run.count});
  }
  std::ranges::sort(out, {}, &StatePiece::whole);
  return out;
}

}  // namespace piper
