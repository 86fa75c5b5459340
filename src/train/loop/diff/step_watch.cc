#include "train/loop/diff/step_watch.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace piper {
namespace {

/// NaN where one is: the measure of what is only looked at.
Measure infinite_measure() {
  Measure out;
  out.largest = out.difference = std::numeric_limits<double>::infinity();
  return out;
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
  for (const Chunk& chunk : graph.chunks)
    if (chunk.routed_by) ends_.insert(graph[*chunk.routed_by].name);
  for (const PlanTemplate& program : plan.templates)
    for (const int device : program.devices)
      devices_.emplace(device, OnDevice{&program, PlanIndex(plan, program, device), {}, {}, {}, {}});
}

void StepWatch::begin(const ReferenceStep* reference, const std::vector<DeviceRun*>& devices) {
  reference_ = reference;
  findings_.clear();
  written_.clear();
  held_.clear();
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
    on.updates.clear();
    for (const PlannedOp& op : on.program->ops)
      if (op.kind == OpKind::Update)
        for (const BufferId buffer : op.writes) on.before[buffer] = run->frame()[buffer].clone();
  }
}

void StepWatch::after(int device, OpId index, Frame& frame) {
  const PlannedOp& what = op(device, index);
  const auto& buffers = program(device).buffers;
  look_at_memory(device, index, frame);
  if (what.kind == OpKind::Run) return look_at_run(device, index, frame);
  if (what.kind == OpKind::Update) {
    // the gradients of matrices have become directions
    if (!devices_.at(device).index.buckets.at(what.label.name).bucket->matrices)
      look_at_gradients(device, index, frame);
    return look_at_update(device, index, frame);
  }
  for (const BufferId buffer : what.writes) {
    const Category category = buffers[buffer].category;
    if (category == Category::Activations) look_at_value(device, index, buffer, frame, What::Value);
    if (category == Category::Gradients && what.kind != OpKind::Rounds) look_at_reduction(device, index, frame);
  }
  if (what.kind == OpKind::Rounds && what.label.pass != Pass::F && what.label.pass != Pass::R)
    look_at_contributions(device, index, computations_.form(plan_.names[plan_.works[what.work].name], Pass::B),
                          place_of_run(plan_, what, device, what.label.slice), frame);
}

/// The loss is known before the first update; gradients, of which the norm is made, are looked at until the last.
void StepWatch::check_scalars(const StepOutcome& outcome) {
  const auto updates = [&](const OpOnDevice& at) { return op(at.device, at.op).kind == OpKind::Update; };
  const auto first = std::find_if(order_.begin(), order_.end(), updates);
  const auto last = std::find_if(order_.rbegin(), order_.rend(), updates);
  if (!reference_ || first == order_.end()) return;
  const auto add_scalar = [&](const OpOnDevice& at, const std::string& what, double ours, double theirs, DType type) {
    Finding finding = found(What::Scalar, at.device, at.op, what);
    const at::Tensor a = at::full({1}, ours, at::kDouble), b = at::full({1}, theirs, at::kDouble);
    finding.tolerance = tolerance_of_computed(scalar_type(type));
    compare(std::move(finding), a, b);
  };
  add_scalar(*first, "loss", outcome.loss, reference_->loss, step_.weights);
  add_scalar(*last, "norm of all gradients", outcome.gradient_norm, reference_->gradient_norm, step_.gradients);
}

std::vector<Finding> StepWatch::end(Job& job, const StepOutcome& outcome) {
  if (reference_) {
    check_reductions();
    check_scalars(outcome);
    check_updates(outcome);
    check_copies(job);
  }
  std::map<std::pair<int, OpId>, size_t> position;
  for (size_t i = 0; i < order_.size(); ++i) position[{order_[i].device, order_[i].op}] = i + 1;
  for (Finding& finding : findings_) {  // what several have together is known when the last has it
    const PlannedOp* own = !finding.op.valid() ? nullptr : &op(finding.device, finding.op);
    if (!own) continue;
    for (const int device : finding.devices)
      for (const OpId i : program(device).ops.ids()) {
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
    const size_t at = !finding.op.valid() ? 0 : position.at({finding.device, finding.op});
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

const Finding* StepWatch::written(int device, BufferId buffer) const {
  const auto found = written_.find({device, buffer});
  return found == written_.end() ? nullptr : &findings_[found->second];
}

Finding StepWatch::found(What what, int device, OpId index, const std::string& of, int rank) {
  Finding out;
  out.what = what;
  out.device = device;
  out.op = index;
  out.name = of;
  out.rank = rank;
  return out;
}

/// Of numbers that were computed from weights: whatever their own type, they are no more exact than those.
double StepWatch::tolerance_of_computed(c10::ScalarType type) const {
  if (!c10::isFloatingType(type)) return tolerance_of(type, tolerance_);
  return std::max(tolerance_of(type, tolerance_), tolerance_of(scalar_type(step_.weights), tolerance_));
}

/// `slack`: what rounding may do besides, as a norm. `noise`: root mean square of the largest of its like; where both
/// are nothing beside it they are rounding errors, of which there is nothing to compare.
void StepWatch::compare(Finding finding, const at::Tensor& ours, const at::Tensor& theirs, double slack, double noise,
                        BufferId buffer) {
  if (finding.tolerance == 0) finding.tolerance = tolerance_of_computed(ours.scalar_type());
  const Measure& of = finding.measure = measure(ours, theirs);
  finding.differs = !(of.difference <= finding.tolerance * of.norm + slack);
  const double least = finding.tolerance * noise;
  if (finding.differs && of.rms_a <= least && of.rms_b <= least)
    return not_compared("gradient of " + finding.name,
                        fmt::format("rounding errors only: {:.1e}, where the largest is {:.1e}", of.rms_b, noise));
  add(std::move(finding), buffer);
}

void StepWatch::finite(Finding finding, const at::Tensor& ours, BufferId buffer) {
  finding.differs = !all_finite(ours);
  if (finding.differs) finding.measure = infinite_measure();
  add(std::move(finding), buffer);
}

void StepWatch::add(Finding finding, BufferId buffer) {
  const std::lock_guard lock(mutex_);
  const std::vector<int> on = finding.devices.empty() ? std::vector<int>{finding.device} : finding.devices;
  for (const int device : on) {
    if (!buffer.valid()) continue;
    const auto [at, fresh] = written_.try_emplace({device, buffer}, findings_.size());
    if (finding.what != What::Update) at->second = findings_.size();  // what was read is what was there before it
  }
  findings_.push_back(std::move(finding));
}

void StepWatch::not_compared(const std::string& what, const std::string& why) {
  const std::lock_guard lock(mutex_);
  not_compared_.emplace(what, why);
}

}  // namespace piper
