// Gradients of parameters: what computations add to them, what becomes of their sums.
#include "train/loop/diff/step_watch.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/invariant.h"

namespace piper {

at::Tensor StepWatch::last(int device, BufferId buffer) {
  const std::lock_guard lock(mutex_);
  return devices_.at(device).last[buffer];
}
void StepWatch::keep_last(int device, BufferId buffer, at::Tensor gradients) {
  const std::lock_guard lock(mutex_);
  devices_.at(device).last[buffer] = std::move(gradients);
}

void StepWatch::look_at_contributions(int device, OpId index, const ComputationForm& form, const ValuePlace& place,
                                      Frame& frame) {
  const PlannedOp& what = op(device, index);
  std::set<BufferId> buffers;
  for (size_t i = 0; i < form.gradients.size(); ++i) {
    const std::string& parameter = form.gradients[i];
    const Flat at = flat(device, what.writes, parameter);
    buffers.insert(at.buffer);
    const at::Tensor now = at.of(frame);
    Finding finding = found(What::Contribution, device, index, parameter, static_cast<int>(i));
    finding.first_sample = place.first_sample;
    finding.samples = place.samples;
    if (!reference_) {
      finite(std::move(finding), now, at.buffer);
      continue;
    }
    if (reference_->contributions.empty()) continue;  // their sums are compared
    at::Tensor ours = now.to(at::kDouble);
    double rounded = now.norm().item<double>();
    if (const at::Tensor all = last(device, at.buffer); all.defined()) {
      const at::Tensor before = all.narrow(0, at.offset, at.elements);
      rounded += before.norm().item<double>();
      ours = ours - before.to(at::kDouble);
    }
    const std::string& chunk = plan_.names[plan_.works[what.work].name];
    if (place.routed()) {
      ours = with_other_rounds(fmt::format("{} {} {} on {}", parameter, chunk, place.first_sample, device), ours);
      if (!ours.defined()) continue;
    }
    const at::Tensor whole = contributed(parameter, what, place);
    invariant(whole.defined(), "the reference runs the passes of the plan");
    if (place.members.size() > 1 && partial_.contains(parameter)) {
      const int pass = place.routed() ? -1 : static_cast<int>(*what.label.pass);
      const std::string key = fmt::format("{} {} {} {} {}", parameter, chunk, pass, place.first_sample,
                                          place.shards[ShardKind::Expert].index);
      ours = join(key, ours, device, place, Partial::Sum, finding.devices);
      if (!ours.defined()) continue;
    }
    const double unit = rounding_of(now.scalar_type());
    finding.tolerance = tolerance_of_computed(now.scalar_type());
    compare(std::move(finding), ours, piece(device, whole, parameter, place),
            4 * unit * rounded * std::sqrt(static_cast<double>(std::max<size_t>(place.members.size(), 1))),
            reference_->largest_contribution);
  }
  for (const BufferId buffer : buffers) keep_last(device, buffer, frame[buffer].clone());
}

/// What one device adds to the gradient in this computation; where rows come in rounds, in all of its passes.
at::Tensor StepWatch::contributed(const std::string& parameter, const PlannedOp& by, const ValuePlace& place) const {
  std::set<Pass> passes = {*by.label.pass};
  if (place.routed()) passes = {Pass::B, Pass::BI, Pass::BW};
  at::Tensor out;
  for (const int64_t first : place.slices())
    for (const Pass pass : passes) {
      const std::string& chunk = plan_.names[plan_.works[by.work].name];
      const auto given = reference_->contributions.find({parameter, chunk, pass, first});
      if (given == reference_->contributions.end()) continue;
      const at::Tensor wide = given->second.to(at::kDouble);
      out = out.defined() ? out + wide : wide;
    }
  return out;
}

/// The first round is of one operation, the others of another: the sum of both, for whoever comes last.
at::Tensor StepWatch::with_other_rounds(const std::string& key, const at::Tensor& part) {
  const std::lock_guard lock(mutex_);
  Joint& joint = joints_[key];
  if (joint.sum.defined()) return joint.sum + part;
  joint.sum = part.clone();  // it may be memory to which the others add
  return {};
}

void StepWatch::look_at_reduction(int device, OpId index, Frame& frame) {
  const PlannedOp& what = op(device, index);
  const OnDevice& on = devices_.at(device);
  const auto category = [&](BufferId buffer) { return on.program->buffers[buffer].category; };
  for (const BufferId buffer : what.writes) {
    if (category(buffer) != Category::Gradients) continue;
    if (!reference_) {
      finite(found(What::Reduction, device, index, name(what.label)), frame[buffer], buffer);
      continue;
    }
    Reduced reduced;
    reduced.after = frame[buffer].clone();
    reduced.before = last(device, buffer);
    if (!reduced.before.defined()) reduced.before = at::zeros_like(reduced.after);
    for (const BufferId read : what.reads)
      if (category(read) == Category::Communication) reduced.contribution = frame[read].clone();
    keep_last(device, buffer, reduced.after);
    const std::lock_guard lock(mutex_);
    reductions_[what.communication][device] = std::move(reduced);
    reducing_[what.communication] = {device, index};
  }
}

/// Of a bucket, when all devices have given what they have.
void StepWatch::look_at_gradients(int device, OpId index, Frame& frame) {
  const PlannedOp& what = op(device, index);
  const OnDevice& on = devices_.at(device);
  const auto& [bucket, part] = on.index.buckets.at(what.label.name);
  int64_t offset = 0;
  for (const PlanParameter& parameter : bucket->parameters) {
    const std::string& of = plan_.names[parameter.name];
    const Flat at = flat(device, what.reads, of);
    const at::Tensor& buffer = frame[at.buffer];
    const ElementRange range = part->range();
    const int64_t begin = std::max(offset, range.begin), end = std::min(offset + parameter.elements, range.end());
    const int64_t from = offset;
    offset += parameter.elements;
    if (begin >= end) continue;
    const at::Tensor ours = buffer.narrow(0, offset_in(*part, buffer.numel(), {begin, end - begin}), end - begin);
    Finding finding = found(What::Gradient, device, index, of, static_cast<int>(from));
    if (!reference_) {
      finite(std::move(finding), ours, at.buffer);
      continue;
    }
    const auto whole = reference_->gradients.find(of);
    if (whole == reference_->gradients.end()) {
      not_compared("gradient of " + of, "the other side has none");
      continue;
    }
    const at::Tensor theirs = shard_of(whole->second, computations_.parameter(of), part->shards).reshape({-1});
    const auto contributed = reference_->contributed.find(of);
    double slack = 2 * rounding_of(ours.scalar_type()) * static_cast<double>(reference_->most_contributions);
    slack *= contributed == reference_->contributed.end() ? 0 : contributed->second;
    compare(std::move(finding), ours, theirs.narrow(0, begin - from, end - begin), slack, reference_->largest_gradient,
            at.buffer);
  }
}

void StepWatch::check_reductions() {
  for (const auto& [communication, devices] : reductions_) {
    const auto& [some, index] = reducing_.at(communication);
    const PlannedOp& what = op(some, index);
    const PlanBucket& bucket = *devices_.at(some).index.buckets.at(what.label.name).bucket;
    const PartitionId over = plan_.communications[communication].over;
    for (const auto& [device, reduced] : devices) {
      const BucketPart part = *part_of(plan_, bucket, device);
      OpId here{0};
      while (op(device, here).communication != communication || op(device, here).kind != what.kind) ++here.value;
      const std::vector<int> members = over.valid() ? part_with(plan_, over, device) : std::vector<int>();
      const auto check = [&](ElementRange range, const std::vector<int>& owners, bool contributed, bool added) {
        at::Tensor sum;
        double given = 0;
        const auto put = [&](const at::Tensor& flat, const BucketPart& of) {
          const at::Tensor wide = flat.narrow(0, offset_in(of, flat.numel(), range), range.count).to(at::kDouble);
          given += wide.norm().item<double>();
          sum = sum.defined() ? sum + wide : wide;
        };
        for (const int owner : owners) {
          const auto of = devices.find(owner);
          if (of == devices.end()) return;
          put(contributed ? of->second.contribution : of->second.before, *part_of(plan_, bucket, owner));
        }
        if (added) put(reduced.before, part);
        const at::Tensor ours = reduced.after.narrow(0, offset_in(part, reduced.after.numel(), range), range.count);
        Finding finding = found(What::Reduction, device, here, name(what.label));
        if (owners.size() > 1) finding.devices = owners;
        finding.tolerance = tolerance_of(ours.scalar_type(), tolerance_);
        compare(std::move(finding), ours, sum,
                2 * rounding_of(ours.scalar_type()) * given * static_cast<double>(owners.size()));
      };
      if (what.kind == OpKind::AllReduce) {
        check({0, reduced.after.numel()}, members, false, false);
      } else if (what.kind == OpKind::ReduceScatter) {
        check(part.owned(), members, reduced.contribution.defined(), reduced.contribution.defined());
      } else if (what.kind == OpKind::AllGather) {
        for (const int member : members) check(part_of(plan_, bucket, member)->owned(), {member}, false, false);
      } else if (what.kind == OpKind::ReducePieces) {
        for (const OwnedPiece& piece : owned_pieces(plan_, bucket))
          if (std::find(piece.owners.begin(), piece.owners.end(), device) != piece.owners.end())
            check(piece.range, piece.owners, false, false);
      }
    }
  }
}

}  // namespace piper
