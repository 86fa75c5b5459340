// What computations and communications read and write: inputs, weights, values.
#include "train/loop/diff/step_watch.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/invariant.h"

namespace piper {

void StepWatch::look_at_run(int device, OpId index, Frame& frame) {
  const PlannedOp& what = op(device, index);
  const ComputationForm form = computations_.form(name(what.label), *what.label.pass);
  const OnDevice& on = devices_.at(device);
  const ValuePlace place = place_of_run(plan_, what, device, what.label.slice);
  for (const BufferId buffer : what.reads)
    if (on.program->buffers[buffer].category == Category::Activations && !on.index.written[buffer])
      look_at_value(device, index, buffer, frame, What::Input, index);
  for (size_t i = 0; i < form.parameters.size(); ++i)
    look_at_weight(device, index, form.parameters[i], place, frame, static_cast<int>(i));
  for (const std::string& value : form.writes)
    for (const BufferId buffer : what.writes) {
      const PlanBuffer& of = on.program->buffers[buffer];
      if (of.category == Category::Activations && name(of.label) == value)
        look_at_value(device, index, buffer, frame, What::Value);
    }
  look_at_contributions(device, index, form, place, frame);
  if (!reference_) keep_culprit(device, index, form, place, frame);
}

void StepWatch::look_at_value(int device, OpId index, BufferId buffer, Frame& frame, What what, OpId reader) {
  const PlanLabel& label = program(device).buffers[buffer].label;
  const ValuePlace* place = places_.find(device, buffer);
  const Value* value = places_.value(label);
  const at::Tensor& ours = frame[buffer];
  if (!value || !place || !ours.defined()) return;
  if (const PlannedOp& by = op(device, index); by.kind == OpKind::AllToAll && by.communication.valid() &&
                                               plan_.communications[by.communication].buffer > 0 && !place->routed())
    return;  // rows of further rounds are still to come
  Finding finding = found(what, device, index, value->name, buffer.value);
  finding.reader = reader;
  finding.first_sample = place->first_sample;
  finding.samples = place->samples;
  if (!reference_) return finite(std::move(finding), ours, buffer);
  if (!reference_->same_slices && label.pass && *label.pass != Pass::F && *label.pass != Pass::R)
    return not_compared(value->name, "gradients of values belong to slices, and the slices are others");
  if (plan_.shared[SampleAxis::Cp] > 1 && what == What::Value) {
    if (label.pass && *label.pass != Pass::F && *label.pass != Pass::R)
      return not_compared(value->name, "every device has a loss of its own tokens, and gradients of that");
    if (!std::ranges::any_of(value->shape, [](const Dim& dim) { return dim.label == sequence_label; }))
      return not_compared(value->name, "every device has that of its own tokens");
  }
  std::vector<at::Tensor> wholes;
  for (const int64_t first : place->slices()) {
    const at::Tensor whole = reference_->values.find(*value, first, place->samples);
    if (!whole.defined())
      return not_compared(value->name, reference_->values.has(value->name)
                                           ? "it has no dimension of samples, and the slices are others"
                                           : "the other side has no value of this name");
    wholes.push_back(by_dimensions(whole, *value, place->samples));
    if (!wholes.back().defined()) return not_compared(value->name, "its tensor has other dimensions than the value");
  }
  at::Tensor here = ours, theirs;
  if (place->routed() && ends_.contains(value->name)) {
    theirs = at::cat(wholes);
    here = ours.narrow(0, 0, theirs.numel());  // behind them stands what follows from them for this device
  } else if (place->routed() && labelled(value->shape, routed_label)) {
    const Value* ends = ends_read(device, op(device, index));
    const std::vector<int32_t> known = ends ? ends_of(*ends, *place) : std::vector<int32_t>();
    if (known.empty()) return not_compared(value->name, "nothing says which rows came to the experts of a device");
    std::tie(here, theirs) = take_rows(ours, wholes, known, *value, *place);
  } else {
    theirs = take_place(std::move(wholes), *value, *place);
  }
  if (theirs.numel() != here.numel())
    return not_compared(value->name, fmt::format("device {} has {} of its elements, which are {} there", device,
                                                 here.numel(), theirs.numel()));
  if (place->partial == Partial::No) return compare(std::move(finding), here, theirs, 0, 0, buffer);
  const std::string key = fmt::format("{} {} {} {} {}", value->name, name(op(device, index).label),
                                      static_cast<int>(*op(device, index).label.pass), place->first_sample,
                                      place->shards[ShardKind::Expert].index);
  const at::Tensor together = join(key, here, device, *place, place->partial, finding.devices);
  if (together.defined()) compare(std::move(finding), together.to(ours.scalar_type()), theirs, 0, 0, buffer);
}

/// What tells the operation whose rows are where; null: nothing.
const Value* StepWatch::ends_read(int device, const PlannedOp& op) const {
  for (const BufferId buffer : op.reads)
    if (const Value* value = places_.value(program(device).buffers[buffer].label); value && ends_.contains(value->name))
      return value;
  return nullptr;
}

/// Of all slices whose rows are there, as the other side has them; empty: it has none.
std::vector<int32_t> StepWatch::ends_of(const Value& ends, const ValuePlace& place) const {
  std::vector<int32_t> out;
  for (const int64_t first : place.slices()) {
    const at::Tensor found = reference_->values.find(ends, first, place.samples);
    if (!found.defined()) return {};
    const at::Tensor flat = found.contiguous();
    out.insert(out.end(), flat.const_data_ptr<int32_t>(), flat.const_data_ptr<int32_t>() + flat.numel());
  }
  return out;
}

/// Undefined: not all have come yet. Of integers too, in float64.
at::Tensor StepWatch::join(const std::string& key, const at::Tensor& part, int device, const ValuePlace& place,
                           Partial how, std::vector<int>& devices) {
  const at::Tensor wide = part.to(at::kDouble).contiguous();
  const std::lock_guard lock(mutex_);
  Joint& joint = joints_[key];
  if (!joint.sum.defined())
    joint.sum = wide.clone();
  else
    joint.sum = how == Partial::Max ? at::maximum(joint.sum, wide) : joint.sum + wide;
  joint.devices.push_back(device);
  if (joint.devices.size() < place.members.size()) return {};
  devices = place.members;
  return joint.sum;
}

StepWatch::Flat StepWatch::flat(int device, const std::vector<BufferId>& buffers, const std::string& parameter) const {
  const OnDevice& on = devices_.at(device);
  const auto place = on.index.parameters.find(parameter);
  for (const BufferId buffer : buffers) {
    const PlanBuffer& of = on.program->buffers[buffer];
    if (of.category == Category::Activations || of.category == Category::Temporaries) continue;
    if (place != on.index.parameters.end() && place->second.bucket == of.label.name)
      return {buffer, place->second.offset, place->second.elements};
  }
  internal_error("the plan has no buffer for parameter " + parameter);
}

/// What a computation at this place wants of a parameter, whatever the bucket says.
at::Tensor StepWatch::piece(int device, const at::Tensor& whole, const std::string& parameter,
                            const ValuePlace& place) const {
  const PlanIndex& index = devices_.at(device).index;
  LocalShards shards = index.buckets.at(index.parameters.find(parameter)->second.bucket).part->shards;
  for (size_t k = 0; k < shards.of.size(); ++k)
    if (place.shards.of[k].count > 1) shards.of[k].index = place.shards.of[k].index;
  return shard_of(whole, computations_.parameter(parameter), shards).reshape({-1});
}

OpId StepWatch::writer_before(int device, OpId index, BufferId buffer) const {
  for (OpId i(index.value - 1); i.valid(); --i.value)
    if (const std::vector<BufferId>& writes = op(device, i).writes;
        std::find(writes.begin(), writes.end(), buffer) != writes.end())
      return i;
  return {};
}

void StepWatch::look_at_weight(int device, OpId index, const std::string& parameter, const ValuePlace& place,
                               Frame& frame, int rank) {
  const Flat at = flat(device, op(device, index).reads, parameter);
  {
    const std::lock_guard lock(mutex_);
    if (!seen_
             .insert(
                 fmt::format("{} {} {} {}", device, at.buffer.value, parameter, place.shards[ShardKind::Expert].index))
             .second)
      return;
  }
  Finding finding = found(What::Weight, device, writer_before(device, index, at.buffer), parameter, rank);
  finding.reader = index;
  if (!reference_) return finite(std::move(finding), at.of(frame), at.buffer);
  const auto whole = reference_->weights.find(parameter);
  if (whole == reference_->weights.end())
    return not_compared(parameter, "the other side has no parameter of this name");
  compare(std::move(finding), at.of(frame), piece(device, whole->second, parameter, place), 0, 0, at.buffer);
}

void StepWatch::keep_culprit(int device, OpId index, const ComputationForm& form, const ValuePlace& place,
                             Frame& frame) {
  constexpr size_t enough = 64;  // what is not finite spreads, and only the first is asked for
  const PlannedOp& what = op(device, index);
  Culprit culprit{device, index, place, frame.settings().seed, {}, {}};
  for (const std::string& value : form.reads)
    for (const BufferId buffer : what.reads)
      if (const PlanBuffer& of = program(device).buffers[buffer];
          of.category == Category::Activations && name(of.label) == value) {
        culprit.reads.push_back(frame[buffer]);
        if (form.routed_by != value || !place.routed()) continue;
        at::Tensor& ends = culprit.reads.back();  // of this device's experts, behind those of all devices
        const int64_t here = computations_.value(value, place.samples, place.shards.counts()).sizes[0];
        ends = ends.narrow(0, ends.numel() - here, here);
      }
  for (const std::string& parameter : form.parameters) {
    const at::Tensor view = flat(device, what.reads, parameter).of(frame);
    const PlanIndex& at = devices_.at(device).index;
    const LocalShards& shards = at.buckets.at(at.parameters.find(parameter)->second.bucket).part->shards;
    culprit.parameters.push_back(view.view(computations_.parameter(parameter).local_sizes(shards)));
  }
  const auto finite_all = [](const std::vector<at::Tensor>& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), all_finite);
  };
  std::vector<at::Tensor> writes;
  for (const BufferId buffer : what.writes)
    if (frame[buffer].defined()) writes.push_back(frame[buffer]);
  if (finite_all(writes) || !finite_all(culprit.reads) || !finite_all(culprit.parameters)) return;
  for (auto* tensors : {&culprit.reads, &culprit.parameters})
    for (at::Tensor& tensor : *tensors) {
      const at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
      tensor = copy.copy_(tensor);
    }
  const std::lock_guard lock(mutex_);
  if (culprits_.size() < enough) culprits_.push_back(std::move(culprit));
}

}  // namespace piper
