// Weights after the step: what the optimizer makes of them, and what other devices have of them.
#include "train/loop/diff/step_watch.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "runtime/update_parts.h"

namespace piper {

void StepWatch::look_at_update(int device, OpId index, Frame& frame) {
  const PlannedOp& what = op(device, index);
  const OnDevice& on = devices_.at(device);
  const auto& [bucket, part] = on.index.buckets.at(what.label.name);
  {
    const std::lock_guard lock(mutex_);
    devices_.at(device).updates.insert(what.label.name);
  }
  if (bucket->matrices)
    return not_compared(name(what.label), fmt::format("{} updates whole parameters", piper::name(step_.optimizer)));
  const Optimizer kind = optimizer_of(step_, bucket->matrices);
  const ElementTypes types = element_types(step_, bucket->weights);
  const StepSettings& settings = frame.settings();
  const auto find = [&](const std::vector<BufferId>& buffers, Category category) {
    for (const BufferId buffer : buffers)
      if (on.program->buffers[buffer].category == category) return buffer;
    return BufferId();
  };
  const BufferId weights = find(what.writes, Category::Weights), gradients = find(what.reads, Category::Gradients),
                 state = find(what.writes, Category::Optimizer);
  const ElementRange range = part->range();
  const auto ranged = [&](const at::Tensor& buffer) {
    return buffer.narrow(0, offset_in(*part, buffer.numel(), range), range.count);
  };
  Finding finding = found(What::Update, device, index, name(what.label));
  if (!reference_) return finite(std::move(finding), ranged(frame[weights]), weights);
  const auto losses = static_cast<double>(reference_->losses);
  const double norm = std::sqrt(frame.scalars.squares) / losses;
  if (!std::isfinite(norm) || !std::isfinite(frame.scalars.loss)) return;  // nothing is updated
  const GradientScale scale = gradient_scale(settings, norm, losses);
  at::Tensor theirs = ranged(on.before.at(weights)).clone();
  const at::Tensor kept = !state.valid() ? at::Tensor() : on.before.at(state).clone();
  for (const UpdatePart& here : types.random_rounding
                                    ? rounded_parts(plan_, *bucket, *part, settings.groups, computations_)
                                    : update_parts(plan_, *bucket, *part, settings.groups))
    update(settings_of(settings_of(here, settings), kind), types, settings.updates + 1, scale, bytes_of(theirs),
           bytes_of(ranged(frame[gradients])), kept.defined() ? bytes_of(kept) : nullptr, range.count,
           elements_of(here, settings));
  if (const int64_t moments = piper::moments(kind) * range.count; kept.defined() && moments > 0) {
    const auto seen = [&](const at::Tensor& bytes) {
      return bytes.narrow(0, 0, moments * piper::bytes_of(types.moments)).view(scalar_type(types.moments));
    };
    Finding other = found(What::Update, device, index, name(what.label) + " (moments)", 1);
    other.measure = measure(seen(frame[state]), seen(kept));
    other.differs = other.measure.difference > 0;
    add(std::move(other), state);
  }
  finding.measure = measure(ranged(frame[weights]), theirs);
  finding.differs = finding.measure.difference > 0;  // the same numbers give the same bits
  {
    const std::lock_guard lock(mutex_);
    devices_.at(device).updated[what.label.name] = ranged(frame[weights]).clone();
  }
  add(std::move(finding), weights);
}

/// Weights that have a gradient, and that nothing has updated on a device that holds them.
void StepWatch::check_updates(const StepOutcome& outcome) {
  if (!outcome.updates || outcome.skipped) return;
  for (const auto& [device, on] : devices_)
    for (const auto& [id, held] : on.index.buckets) {
      const auto& [bucket, part] = held;
      const bool trained = std::ranges::any_of(bucket->parameters, [&](const PlanParameter& parameter) {
        return reference_->gradients.contains(plan_.names[parameter.name]);
      });
      if (!part || !trained || on.updates.contains(id)) continue;
      Finding finding = found(What::Update, device, {}, plan_.names[id]);
      finding.differs = true;
      add(std::move(finding), {});
    }
}

/// What other devices have of weights that one has updated.
void StepWatch::check_copies(Job& job) {
  std::map<std::string, at::Tensor> wholes;
  for (DeviceRun* run : job.devices()) {
    const OnDevice& on = devices_.at(run->device());
    for (const auto& [id, held] : on.index.buckets) {
      const auto& [bucket, part] = held;
      if (!part) continue;
      for (const BufferId b : on.program->buffers.ids()) {
        const PlanBuffer& of = on.program->buffers[b];
        if (!of.persistent || of.category != Category::Weights || of.label.name != id) continue;
        const at::Tensor& flat = run->frame()[b];
        const OpId writer = writer_before(run->device(), OpId(on.program->ops.size()), b);
        const bool whole_bucket = flat.numel() == part->padded;
        for (const int owner :
             part_with(plan_, bucket->holders[static_cast<size_t>(part->holder)].copies, run->device())) {
          const auto theirs = devices_.at(owner).updated.find(id);
          if (theirs == devices_.at(owner).updated.end()) continue;  // nothing was
          if (owner != run->device() && !(part->sharded && whole_bucket)) continue;
          const ElementRange range = part_of(plan_, *bucket, owner)->range();
          Finding finding = found(What::Copy, run->device(), writer, name(of.label), owner);
          finding.measure = measure(flat.narrow(0, offset_in(*part, flat.numel(), range), range.count), theirs->second);
          finding.differs = finding.measure.difference > 0;
          add(std::move(finding), {});
        }
        if (!whole_bucket) continue;
        int64_t offset = 0;
        for (const PlanParameter& parameter : bucket->parameters) {
          const std::string& of_name = plan_.names[parameter.name];
          at::Tensor& whole = wholes[of_name];
          if (!whole.defined()) whole = job.parameter(of_name, Kept::Weight);
          const at::Tensor theirs = shard_of(whole, computations_.parameter(of_name), part->shards).reshape({-1});
          Finding finding = found(What::Copy, run->device(), writer, of_name);
          finding.measure = measure(flat.narrow(0, offset, parameter.elements), theirs);
          finding.differs = finding.measure.difference > 0;
          add(std::move(finding), {});
          offset += parameter.elements;
        }
      }
    }
  }
}

std::vector<Finding> StepWatch::updated(Job& ours, Job& theirs) {
  constexpr double decided = 1e-3;
  findings_.clear();
  written_.clear();
  for (const auto& [device, index] : order_) {
    if (op(device, index).kind != OpKind::Update) continue;
    const auto& [bucket, part] = devices_.at(device).index.buckets.at(op(device, index).label.name);
    if (!part->counts()) continue;
    for (const PlanParameter& parameter : bucket->parameters) {
      const std::string& of = plan_.names[parameter.name];
      const bool there = reference_->weights.contains(of);
      if (!there || !seen_.insert("updated " + of).second) continue;
      const double scale = static_cast<double>(ours.plan().losses) / static_cast<double>(theirs.plan().losses);
      const at::Tensor gradient = ours.parameter(of, Kept::Gradient).to(at::kDouble),
                       other = theirs.parameter(of, Kept::Gradient).to(at::kDouble) * scale,
                       same = (gradient - other).abs().le(other.abs() * decided),
                       here = ours.parameter(of, Kept::Weight), elsewhere = theirs.parameter(of, Kept::Weight);
      Finding finding = found(What::Updated, device, index, of);
      finding.tolerance = tolerance_of(here.scalar_type(), tolerance_);
      compare(std::move(finding), here.masked_select(same), elsewhere.masked_select(same));
    }
  }
  return findings_;
}

}  // namespace piper
