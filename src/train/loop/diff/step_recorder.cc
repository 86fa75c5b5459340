#include "train/loop/diff/step_recorder.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace piper {

StepRecorder::StepRecorder(const Plan& plan, const ModelGraph& graph)
    : plan_(plan), graph_(graph), places_(plan, graph, dependence_order(plan)) {}

void StepRecorder::begin(Job& job) {
  out_ = {};
  for (const Parameter& parameter : graph_.parameters)
    out_.weights[parameter.name] = job.parameter(parameter.name, Kept::Weight).clone();
}

void StepRecorder::after(int device, OpId index, Frame& frame) {
  const PlanTemplate& program = program_of(plan_, device);
  const PlannedOp& op = program.ops[index];
  if (op.kind != OpKind::Run || op.label.pass == Pass::R) return;
  for (const auto* buffers : {&op.reads, &op.writes})
    for (const BufferId buffer : *buffers) {
      const PlanBuffer& of = program.buffers[buffer];
      if (of.category != Category::Activations || !places_.value(of.label)) continue;
      if (buffers == &op.writes || places_.value(of.label)->kind == ValueKind::Input)
        keep(device, buffer, of.label, frame[buffer]);
    }
}

void StepRecorder::keep(int device, BufferId buffer, const PlanLabel& label, const at::Tensor& here) {
  const ValuePlace* place = places_.find(device, buffer);
  const Value& value = *places_.value(label);
  if (!place || !here.defined() || (place->routed() && labelled(value.shape, routed_label))) return;
  const std::lock_guard lock(mutex_);
  std::vector<int64_t> slices = place->gathered;
  if (slices.empty()) slices = {place->first_sample};
  std::vector<at::Tensor> wholes;
  for (const int64_t first : slices) {
    at::Tensor whole = out_.values.exact(value.name, first, place->samples);
    if (!whole.defined()) {
      std::vector<int64_t> sizes;
      for (const Dim& dim : value.shape) sizes.push_back(dim.extent(place->samples));
      whole = at::zeros(sizes, here.options());
      if (place->partial == Partial::Max) whole.fill_(-std::numeric_limits<double>::infinity());
      out_.values.put(value.name, first, place->samples, whole);
    }
    wholes.push_back(whole);
  }
  give_place(here, wholes, value, *place);
}

ReferenceStep StepRecorder::end(Job& job, const StepOutcome& outcome, int64_t losses) {
  out_.loss = outcome.loss;
  out_.gradient_norm = outcome.gradient_norm;
  out_.losses = losses;
  for (const Parameter& parameter : graph_.parameters) {
    const at::Tensor sum = parameter.frozen ? at::Tensor() : job.parameter(parameter.name, Kept::Gradient);
    if (!sum.defined()) continue;
    at::Tensor& gradient = out_.gradients[parameter.name];
    gradient = sum.to(at::kDouble) * (static_cast<double>(losses) / static_cast<double>(plan_.losses));
    const double rms = gradient.norm().item<double>() / std::sqrt(static_cast<double>(gradient.numel()));
    out_.largest_gradient = std::max(out_.largest_gradient, rms);
  }
  out_.same_slices = losses == plan_.losses;
  return std::move(out_);
}

}  // namespace piper
