#include "train/loop/diff/step_watch.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/invariant.h"

namespace piper {
namespace {

using What = Finding::What;

/// NaN where one is: the measure of what is only looked at.
Measure infinite_measure() {
  Measure out;
  out.largest = out.difference = std::numeric_limits<double>::infinity();
  return out;
}

std::vector<int64_t> slices_at(const ValuePlace& place) {
  return place.gathered.empty() ? std::vector<int64_t>{place.first_sample} : place.gathered;
}

}  // namespace

StepWatch::StepWatch(const Plan& plan, const ModelGraph& graph, const Computations& computations,
                     const StepConfig& step, std::optional<double> tolerance)
    : plan_(plan),
      graph_(graph),
      computations_(computations),
      step_(step),
      tolerance_(tolerance),
      order_(dependence_order(plan)),
      places_(plan, graph, order_) {
  for (const Parameter& parameter : graph.parameters)
    if (parameter.partial) partial_.insert(parameter.name);
  for (const PlanTemplate& program : plan.templates)
    for (const int device : program.devices)
      devices_.emplace(device, OnDevice{&program, PlanIndex(plan, program, device), {}, {}, {}});
}

void StepWatch::begin(const ReferenceStep* reference, const std::vector<DeviceRun*>& devices) {
  reference_ = reference;
  findings_.clear();
  written_.clear();
  joints_.clear();
  reductions_.clear();
  reducing_.clear();
  seen_.clear();
  culprits_.clear();
  for (DeviceRun* run : devices) {
    OnDevice& on = devices_.at(run->device());
    on.last.clear();
    on.before.clear();
    on.updated.clear();
    for (const PlannedOp& op : on.program->ops)
      if (op.kind == OpKind::Update)
        for (const int buffer : op.writes) on.before[buffer] = run->frame()[buffer].clone();
  }
}

void StepWatch::after(int device, int index, Frame& frame) {
  const PlannedOp& what = op(device, index);
  const auto& buffers = program(device).buffers;
  if (what.kind == OpKind::Run) return look_at_run(device, index, frame);
  if (what.kind == OpKind::Update) {
    look_at_gradients(device, index, frame);
    return look_at_update(device, index, frame);
  }
  for (const int buffer : what.writes) {
    const Category category = buffers[static_cast<size_t>(buffer)].category;
    if (category == Category::Activations) look_at_value(device, index, buffer, frame, What::Value);
    if (category == Category::Gradients) look_at_reduction(device, index, frame);
  }
}

void StepWatch::look_at_run(int device, int index, Frame& frame) {
  const PlannedOp& what = op(device, index);
  const ComputationForm form = computations_.form(name(what.label), *what.label.pass);
  const OnDevice& on = devices_.at(device);
  const ValuePlace place = place_of_run(plan_, what, device, what.label.slice);
  for (const int buffer : what.reads)
    if (on.program->buffers[static_cast<size_t>(buffer)].category == Category::Activations &&
        !on.index.written[static_cast<size_t>(buffer)])
      look_at_value(device, index, buffer, frame, What::Input, index);
  for (size_t i = 0; i < form.parameters.size(); ++i)
    look_at_weight(device, index, form.parameters[i], place, frame, static_cast<int>(i));
  for (const std::string& value : form.writes)
    for (const int buffer : what.writes) {
      const PlanBuffer& of = on.program->buffers[static_cast<size_t>(buffer)];
      if (of.category == Category::Activations && name(of.label) == value)
        look_at_value(device, index, buffer, frame, What::Value);
    }
  look_at_contributions(device, index, form, place, frame);
  if (!reference_) keep_culprit(device, index, form, place, frame);
}

void StepWatch::look_at_value(int device, int index, int buffer, Frame& frame, What what, int reader) {
  const PlanLabel& label = program(device).buffers[static_cast<size_t>(buffer)].label;
  const ValuePlace* place = places_.find(device, buffer);
  const Value* value = places_.value(label);
  const at::Tensor& ours = frame[buffer];
  if (!value || !place || !ours.defined()) return;
  Finding finding = found(what, device, index, value->name, buffer);
  finding.reader = reader;
  finding.first_sample = place->first_sample;
  finding.samples = place->samples;
  if (!reference_) return finite(std::move(finding), ours, buffer);
  if (!reference_->same_slices && label.pass && *label.pass != Pass::F && *label.pass != Pass::R)
    return not_compared(value->name, "gradients of values belong to slices, and the slices are others");
  std::vector<at::Tensor> wholes;
  for (const int64_t first : slices_at(*place)) {
    const at::Tensor whole = reference_->values.find(*value, first, place->samples);
    if (!whole.defined())
      return not_compared(value->name, reference_->values.has(value->name)
                                           ? "it has no dimension of samples, and the slices are others"
                                           : "the other side has no value of this name");
    wholes.push_back(by_dimensions(whole, *value, place->samples));
    if (!wholes.back().defined()) return not_compared(value->name, "its tensor has other dimensions than the value");
  }
  const at::Tensor theirs = take_place(std::move(wholes), *value, *place);
  if (theirs.numel() != ours.numel())
    return not_compared(value->name, fmt::format("device {} has {} of its elements, which are {} there", device,
                                                 ours.numel(), theirs.numel()));
  if (place->partial == Partial::No) return compare(std::move(finding), ours, theirs, 0, 0, buffer);
  const std::string key =
      fmt::format("{} {} {} {} {}", value->name, name(op(device, index).label),
                  static_cast<int>(*op(device, index).label.pass), place->first_sample, place->part.layout);
  const at::Tensor together = join(key, ours, device, *place, place->partial, finding.devices);
  if (together.defined()) compare(std::move(finding), together.to(ours.scalar_type()), theirs, 0, 0, buffer);
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

StepWatch::Flat StepWatch::flat(int device, const std::vector<int>& buffers, const std::string& parameter) const {
  const OnDevice& on = devices_.at(device);
  const auto place = on.index.parameters.find(parameter);
  for (const int buffer : buffers) {
    const PlanBuffer& of = on.program->buffers[static_cast<size_t>(buffer)];
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
  BucketPart part = *index.buckets.at(index.parameters.find(parameter)->second.bucket).part;
  if (place.parts.layout > 1) part.piece.layout = place.part.layout;
  if (place.parts.cut > 1) part.piece.cut = place.part.cut;
  return piece_of(whole, computations_.parameter(parameter), part).reshape({-1});
}

at::Tensor StepWatch::last(int device, int buffer) {
  const std::lock_guard lock(mutex_);
  return devices_.at(device).last[buffer];
}
void StepWatch::keep_last(int device, int buffer, at::Tensor gradients) {
  const std::lock_guard lock(mutex_);
  devices_.at(device).last[buffer] = std::move(gradients);
}

int StepWatch::writer_before(int device, int index, int buffer) const {
  for (int i = index - 1; i >= 0; --i)
    if (const std::vector<int>& writes = op(device, i).writes;
        std::find(writes.begin(), writes.end(), buffer) != writes.end())
      return i;
  return -1;
}

void StepWatch::look_at_weight(int device, int index, const std::string& parameter, const ValuePlace& place,
                               Frame& frame, int rank) {
  const Flat at = flat(device, op(device, index).reads, parameter);
  {
    const std::lock_guard lock(mutex_);
    if (!seen_.insert(fmt::format("{} {} {} {}", device, at.buffer, parameter, place.part.layout)).second) return;
  }
  Finding finding = found(What::Weight, device, writer_before(device, index, at.buffer), parameter, rank);
  finding.reader = index;
  if (!reference_) return finite(std::move(finding), at.of(frame), at.buffer);
  const auto whole = reference_->weights.find(parameter);
  if (whole == reference_->weights.end())
    return not_compared(parameter, "the other side has no parameter of this name");
  compare(std::move(finding), at.of(frame), piece(device, whole->second, parameter, place), 0, 0, at.buffer);
}

void StepWatch::look_at_contributions(int device, int index, const ComputationForm& form, const ValuePlace& place,
                                      Frame& frame) {
  const PlannedOp& what = op(device, index);
  std::set<int> buffers;
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
    at::Tensor whole;
    for (const int64_t first : slices_at(place)) {
      const auto given = reference_->contributions.find({parameter, name(what.label), *what.label.pass, first});
      invariant(given != reference_->contributions.end(), "the reference runs the passes of the plan");
      whole = whole.defined() ? whole + given->second.to(at::kDouble) : given->second.to(at::kDouble);
    }
    if (place.parts.cut > 1 && partial_.contains(parameter)) {
      const std::string key = fmt::format("{} {} {} {} {}", parameter, name(what.label),
                                          static_cast<int>(*what.label.pass), place.first_sample, place.part.layout);
      ours = join(key, ours, device, place, Partial::Sum, finding.devices);
      if (!ours.defined()) continue;
    }
    const double unit = rounding_of(now.scalar_type());
    finding.tolerance = tolerance_of(now.scalar_type(), tolerance_);
    compare(std::move(finding), ours, piece(device, whole, parameter, place),
            4 * unit * rounded * std::sqrt(static_cast<double>(std::max<size_t>(place.members.size(), 1))),
            reference_->largest_contribution);
  }
  for (const int buffer : buffers) keep_last(device, buffer, frame[buffer].clone());
}

void StepWatch::look_at_reduction(int device, int index, Frame& frame) {
  const PlannedOp& what = op(device, index);
  const OnDevice& on = devices_.at(device);
  const auto category = [&](int buffer) { return on.program->buffers[static_cast<size_t>(buffer)].category; };
  for (const int buffer : what.writes) {
    if (category(buffer) != Category::Gradients) continue;
    if (!reference_) {
      finite(found(What::Reduction, device, index, name(what.label)), frame[buffer], buffer);
      continue;
    }
    Reduced reduced;
    reduced.after = frame[buffer].clone();
    reduced.before = last(device, buffer);
    if (!reduced.before.defined()) reduced.before = at::zeros_like(reduced.after);
    for (const int read : what.reads)
      if (category(read) == Category::Communication) reduced.contribution = frame[read].clone();
    keep_last(device, buffer, reduced.after);
    const std::lock_guard lock(mutex_);
    reductions_[what.communication][device] = std::move(reduced);
    reducing_[what.communication] = {device, index};
  }
}

/// Of a bucket, when all devices have given what they have.
void StepWatch::look_at_gradients(int device, int index, Frame& frame) {
  const PlannedOp& what = op(device, index);
  const OnDevice& on = devices_.at(device);
  const auto& [bucket, part] = on.index.buckets.at(what.label.name);
  int64_t offset = 0;
  for (const PlanParameter& parameter : bucket->parameters) {
    const std::string& of = plan_.names[static_cast<size_t>(parameter.name)];
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
    const at::Tensor theirs = piece_of(whole->second, computations_.parameter(of), *part).reshape({-1});
    const auto contributed = reference_->contributed.find(of);
    double slack = 2 * rounding_of(ours.scalar_type()) * static_cast<double>(reference_->most_contributions);
    slack *= contributed == reference_->contributed.end() ? 0 : contributed->second;
    compare(std::move(finding), ours, theirs.narrow(0, begin - from, end - begin), slack, reference_->largest_gradient,
            at.buffer);
  }
}

void StepWatch::look_at_update(int device, int index, Frame& frame) {
  const PlannedOp& what = op(device, index);
  const OnDevice& on = devices_.at(device);
  const auto& [bucket, part] = on.index.buckets.at(what.label.name);
  const ElementTypes types = element_types(step_, bucket->weights);
  const StepSettings& settings = frame.settings();
  const auto find = [&](const std::vector<int>& buffers, Category category) {
    for (const int buffer : buffers)
      if (on.program->buffers[static_cast<size_t>(buffer)].category == category) return buffer;
    return -1;
  };
  const int weights = find(what.writes, Category::Weights), gradients = find(what.reads, Category::Gradients),
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
  double scale = 1 / losses;
  if (settings.clip && norm > *settings.clip) scale *= *settings.clip / (norm + 1e-6);
  at::Tensor theirs = ranged(on.before.at(weights)).clone();
  const at::Tensor kept = state < 0 ? at::Tensor() : on.before.at(state).clone();
  update(settings.optimizer, types, settings.updates + 1, scale, bytes_of(theirs), bytes_of(ranged(frame[gradients])),
         kept.defined() ? bytes_of(kept) : nullptr, range.count);
  if (const int64_t moments = piper::moments(settings.optimizer.kind) * range.count; kept.defined() && moments > 0) {
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

void StepWatch::check_reductions() {
  for (const auto& [communication, devices] : reductions_) {
    const auto& [some, index] = reducing_.at(communication);
    const PlannedOp& what = op(some, index);
    const PlanBucket& bucket = *devices_.at(some).index.buckets.at(what.label.name).bucket;
    const int over = plan_.communications[static_cast<size_t>(communication)].over;
    for (const auto& [device, reduced] : devices) {
      const BucketPart part = *part_of(plan_, bucket, device);
      int here = 0;
      while (op(device, here).communication != communication || op(device, here).kind != what.kind) ++here;
      const std::vector<int> members = over >= 0 ? part_with(plan_, over, device) : std::vector<int>();
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

void StepWatch::check_scalars(const StepOutcome& outcome) {
  const auto first_update = std::find_if(
      order_.begin(), order_.end(), [&](const OpOnDevice& at) { return op(at.device, at.op).kind == OpKind::Update; });
  if (first_update == order_.end()) return;
  const auto add_scalar = [&](const std::string& what, double ours, double theirs, DType type) {
    Finding finding = found(What::Scalar, first_update->device, first_update->op, what);
    const at::Tensor a = at::full({1}, ours, at::kDouble), b = at::full({1}, theirs, at::kDouble);
    finding.tolerance = tolerance_of(scalar_type(type), tolerance_);
    compare(std::move(finding), a, b);
  };
  if (!reference_) return;
  add_scalar("loss", outcome.loss, reference_->loss, step_.weights);
  add_scalar("norm of all gradients", outcome.gradient_norm, reference_->gradient_norm, step_.gradients);
}

/// What other devices have of weights that one has updated.
void StepWatch::check_copies(Job& job) {
  std::map<std::string, at::Tensor> wholes;
  for (DeviceRun* run : job.devices()) {
    const OnDevice& on = devices_.at(run->device());
    for (const auto& [id, held] : on.index.buckets) {
      const auto& [bucket, part] = held;
      if (!part) continue;
      for (size_t b = 0; b < on.program->buffers.size(); ++b) {
        const PlanBuffer& of = on.program->buffers[b];
        if (!of.persistent || of.category != Category::Weights || of.label.name != id) continue;
        const at::Tensor& flat = run->frame()[static_cast<int>(b)];
        const int writer = writer_before(run->device(), static_cast<int>(on.program->ops.size()), static_cast<int>(b));
        const bool whole_bucket = flat.numel() == part->padded;
        for (const int owner :
             part_with(plan_, bucket->holders[static_cast<size_t>(part->holder)].copies, run->device())) {
          const auto theirs = devices_.at(owner).updated.find(id);
          if (theirs == devices_.at(owner).updated.end()) continue;  // nothing was
          if (owner != run->device() && !(part->cut && whole_bucket)) continue;
          const ElementRange range = part_of(plan_, *bucket, owner)->range();
          Finding finding = found(What::Copy, run->device(), writer, name(of.label), owner);
          finding.measure = measure(flat.narrow(0, offset_in(*part, flat.numel(), range), range.count), theirs->second);
          finding.differs = finding.measure.difference > 0;
          add(std::move(finding), -1);
        }
        if (!whole_bucket) continue;
        int64_t offset = 0;
        for (const PlanParameter& parameter : bucket->parameters) {
          const std::string& of_name = plan_.names[static_cast<size_t>(parameter.name)];
          at::Tensor& whole = wholes[of_name];
          if (!whole.defined()) whole = job.parameter(of_name, Kept::Weight);
          const at::Tensor theirs = piece_of(whole, computations_.parameter(of_name), *part).reshape({-1});
          Finding finding = found(What::Copy, run->device(), writer, of_name);
          finding.measure = measure(flat.narrow(0, offset, parameter.elements), theirs);
          finding.differs = finding.measure.difference > 0;
          add(std::move(finding), -1);
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
      const std::string& of = plan_.names[static_cast<size_t>(parameter.name)];
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

std::vector<Finding> StepWatch::end(Job& job, const StepOutcome& outcome) {
  if (reference_) {
    check_reductions();
    check_scalars(outcome);
    check_copies(job);
  }
  std::map<std::pair<int, int>, size_t> position;
  for (size_t i = 0; i < order_.size(); ++i) position[{order_[i].device, order_[i].op}] = i + 1;
  for (Finding& finding : findings_) {  // what several have together is known when the last has it
    const PlannedOp* own = finding.op < 0 ? nullptr : &op(finding.device, finding.op);
    for (const int device : finding.devices)
      for (int i = 0; own && i < static_cast<int>(program(device).ops.size()); ++i) {
        const PlannedOp& other = op(device, i);
        if (other.kind == own->kind && other.label == own->label && other.communication == own->communication &&
            position.at({device, i}) > position.at({finding.device, finding.op})) {
          finding.device = device;
          finding.op = i;
        }
      }
  }
  // threads come at any time; the order of what they found does not depend on it
  const auto key = [&](const Finding& finding) {
    const size_t at = finding.op < 0 ? 0 : position.at({finding.device, finding.op});
    return std::tuple(at, finding.what, finding.rank, finding.device, finding.name);
  };
  std::vector<size_t> sorted(findings_.size());
  std::iota(sorted.begin(), sorted.end(), size_t{0});
  std::sort(sorted.begin(), sorted.end(), [&](size_t a, size_t b) { return key(findings_[a]) < key(findings_[b]); });
  std::vector<Finding> out;
  std::vector<size_t> moved(sorted.size());
  for (const size_t i : sorted) {
    moved[i] = out.size();
    out.push_back(findings_[i]);
  }
  for (auto& [where, i] : written_) i = moved[i];
  findings_ = out;
  return out;
}

const Finding* StepWatch::written(int device, int buffer) const {
  const auto found = written_.find({device, buffer});
  return found == written_.end() ? nullptr : &findings_[found->second];
}

Finding StepWatch::found(What what, int device, int index, const std::string& of, int rank) {
  Finding out;
  out.what = what;
  out.device = device;
  out.op = index;
  out.name = of;
  out.rank = rank;
  return out;
}

/// `slack`: what rounding may do besides, as a norm. `noise`: root mean square of the largest of its like; where both
/// are nothing beside it they are rounding errors, of which there is nothing to compare.
void StepWatch::compare(Finding finding, const at::Tensor& ours, const at::Tensor& theirs, double slack, double noise,
                        int buffer) {
  if (finding.tolerance == 0) finding.tolerance = tolerance_of(ours.scalar_type(), tolerance_);
  const Measure& of = finding.measure = measure(ours, theirs);
  finding.differs = !(of.difference <= finding.tolerance * of.norm + slack);
  const double least = finding.tolerance * noise;
  if (finding.differs && of.rms_a <= least && of.rms_b <= least)
    return not_compared("gradient of " + finding.name,
                        fmt::format("rounding errors only: {:.1e}, where the largest is {:.1e}", of.rms_b, noise));
  add(std::move(finding), buffer);
}

void StepWatch::finite(Finding finding, const at::Tensor& ours, int buffer) {
  finding.differs = !all_finite(ours);
  if (finding.differs) finding.measure = infinite_measure();
  add(std::move(finding), buffer);
}

void StepWatch::add(Finding finding, int buffer) {
  const std::lock_guard lock(mutex_);
  const std::vector<int> on = finding.devices.empty() ? std::vector<int>{finding.device} : finding.devices;
  for (const int device : on)
    if (buffer >= 0) written_[{device, buffer}] = findings_.size();
  findings_.push_back(std::move(finding));
}

void StepWatch::not_compared(const std::string& what, const std::string& why) {
  const std::lock_guard lock(mutex_);
  not_compared_.emplace(what, why);
}

void StepWatch::keep_culprit(int device, int index, const ComputationForm& form, const ValuePlace& place,
                             Frame& frame) {
  constexpr size_t enough = 64;  // what is not finite spreads, and only the first is asked for
  const PlannedOp& what = op(device, index);
  Culprit culprit{device, index, place, frame.settings().seed, {}, {}};
  for (const std::string& value : form.reads)
    for (const int buffer : what.reads)
      if (const PlanBuffer& of = program(device).buffers[static_cast<size_t>(buffer)];
          of.category == Category::Activations && name(of.label) == value)
        culprit.reads.push_back(frame[buffer]);
  for (const std::string& parameter : form.parameters) {
    const at::Tensor view = flat(device, what.reads, parameter).of(frame);
    const PlanIndex& at = devices_.at(device).index;
    const Division pieces = at.buckets.at(at.parameters.find(parameter)->second.bucket).part->pieces;
    culprit.parameters.push_back(view.view(computations_.parameter(parameter).piece_sizes(pieces)));
  }
  const auto finite_all = [](const std::vector<at::Tensor>& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), all_finite);
  };
  std::vector<at::Tensor> writes;
  for (const int buffer : what.writes)
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
