#include "train/loop/checkpoint/model_state.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/invariant.h"
#include "runtime/element_runs.h"
#include "train/loop/checkpoint/stored_dtype.h"

namespace piper {

std::string_view suffix(Kept kept, Optimizer optimizer) {
  switch (kept) {
    case Kept::Moment1:
      return optimizer == Optimizer::Momentum || optimizer == Optimizer::Muon ? "momentum_buffer" : "exp_avg";
    case Kept::Moment2:
      return "exp_avg_sq";
    case Kept::Master:
      return "master";
    case Kept::Ema:
      return "ema";
    case Kept::Weight:
    case Kept::Gradient:
      break;
  }
  internal_error("weights have no suffix, and gradients are not in checkpoints");
}

ModelState model_state(const Plan& plan, const StepConfig& step, const Computations& computations,
                       const std::vector<SavedName>& names) {
  ModelState out;
  const std::map<std::string, ParameterPlace> places = places_of(plan);
  const std::set<NameId> with_state = buckets_with_state(plan);
  for (const auto& [name, stored, part, parts, rows_before] : names) {
    const auto found = places.find(name);
    if (found == places.end()) continue;  // nothing of the step uses it
    const ParameterPlace& place = found->second;
    const PlanBucket& bucket = plan.buckets[place.bucket];
    std::vector<int64_t> sizes = computations.parameter(name).sizes;
    if (parts > 0) sizes.erase(sizes.begin());
    const int64_t size = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies());
    int64_t first = part * size;
    if (rows_before > 0) {
      first -= rows_before * (size / sizes[0]);
      sizes[0] += rows_before;
    }
    out.weights.push_back({name, Kept::Weight, {stored, piper::stored(bucket.weights), sizes}, place, first});
    if (!with_state.contains(bucket.name)) continue;
    const Optimizer optimizer = optimizer_of(step, bucket.matrices);
    for (const Kept kept : {Kept::Moment1, Kept::Moment2, Kept::Master, Kept::Ema})
      if (const auto dtype = kept_dtype(bucket, step, kept)) {
        const std::string file_name = stored + "." + std::string(suffix(kept, optimizer));
        out.optimizer.push_back({name, kept, {file_name, piper::stored(*dtype), sizes}, place, first});
      }
  }
  return out;
}

std::vector<StatePiece> pieces_of(const Plan& plan, const Computations& computations, const StateTensor& tensor) {
  const ParameterPlace& place = tensor.place;
  const PlanBucket& bucket = plan.buckets[place.bucket];
  const ParameterForm form = computations.parameter(tensor.parameter);
  const ElementRange wanted = {tensor.first, elements(tensor.stored)};
  std::vector<StatePiece> out;
  for (const int device : plan.partitions[bucket.holders[0].copies].members) {
    const BucketPart part = *part_of(plan, bucket, device);
    const ElementRange written = common(written_range(part), place.range);
    for (const ElementRun& run : element_runs(form, part.shards, {written.begin - place.range.begin, written.count})) {
      const ElementRange here = common({run.whole, run.count}, wanted);
      if (here.count > 0)
        out.push_back(
            {device, here.begin - tensor.first, run.shard + here.begin - run.whole + place.range.begin, here.count});
    }
  }
  std::ranges::sort(out, {}, &StatePiece::whole);
  return out;
}

}  // namespace piper
