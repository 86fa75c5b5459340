#include "train/loop/checkpoint/model_state.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/invariant.h"
#include "model/whole_state.h"
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
    case Kept::Whole:
      break;
  }
  internal_error("weights have no suffix, whole states their own, and gradients are not in checkpoints");
}

namespace {

/// A tensor of a checkpoint that has all of something, or of a parameter that is stored in parts one of these, or more
/// rows than there are.
struct StoredPart {
  std::vector<int64_t> sizes;
  int64_t first = 0;  // element
};
StoredPart stored_part(std::vector<int64_t> sizes, int64_t part, int64_t parts, int64_t rows_before) {
  if (parts > 0) sizes.erase(sizes.begin());
  const int64_t size = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies());
  StoredPart out{std::move(sizes), part * size};
  if (rows_before > 0) {
    out.first -= rows_before * (size / out.sizes[0]);
    out.sizes[0] += rows_before;
  }
  return out;
}

}  // namespace

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
    const std::vector<int64_t> whole = computations.parameter(name).sizes;
    const auto [sizes, first] = stored_part(whole, part, parts, rows_before);
    out.weights.push_back({name, Kept::Weight, {stored, piper::stored(bucket.weights), sizes}, place, first});
    if (!with_state.contains(bucket.name)) continue;
    const Optimizer optimizer = optimizer_of(step, bucket.matrices);
    for (const Kept kept : {Kept::Moment1, Kept::Moment2, Kept::Master, Kept::Ema})
      if (const auto dtype = kept_dtype(bucket, step, kept)) {
        const std::string file_name = stored + "." + std::string(suffix(kept, optimizer));
        out.optimizer.push_back({name, kept, {file_name, piper::stored(*dtype), sizes}, place, first});
      }
    const auto dtype = kept_dtype(bucket, step, Kept::Whole);
    if (!dtype) continue;
    ElementRange range = whole_state_of(plan, bucket, step, computations, name);
    for (const WholeState& state : whole_states(optimizer, whole)) {
      range.count = state.count;
      const bool divided = state.by_first || parts == 0;
      const StoredPart of = divided ? stored_part(state.sizes, part, parts, state.by_first ? rows_before : 0)
                                    : StoredPart{state.sizes, 0};
      if (divided || part == 0)
        out.optimizer.push_back({name,
                                 Kept::Whole,
                                 {stored + "." + std::string(state.suffix), piper::stored(*dtype), of.sizes},
                                 {place.bucket, range},
                                 of.first});
      range.begin += state.count;
    }
  }
  return out;
}

std::vector<StatePiece> pieces_of(const Plan& plan, const Computations& computations, const StateTensor& tensor) {
  const ParameterPlace& place = tensor.place;
  const PlanBucket& bucket = plan.buckets[place.bucket];
  const ElementRange wanted = {tensor.first, elements(tensor.stored)};
  if (tensor.kept == Kept::Whole) {
    const ElementRange here = common({0, place.range.count}, wanted);
    return {
        {writer_of_whole_state(plan, bucket), here.begin - tensor.first, place.range.begin + here.begin, here.count}};
  }
  const ParameterForm form = computations.parameter(tensor.parameter);
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
