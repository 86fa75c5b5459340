#include "train/loop/diff/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/loop/diff/find_operator.h"

namespace piper {
namespace {

using What = Finding::What;

std::string what_it_is(const Finding& finding) {
  switch (finding.what) {
    case What::Memory:
      return "memory of " + finding.name;
    case What::Input:
      return "input " + finding.name;
    case What::Weight:
      return "weight " + finding.name;
    case What::Value:
      return "value " + finding.name;
    case What::Contribution:
      return "contribution to the gradient of " + finding.name;
    case What::Reduction:
      return "sum of the gradients of " + finding.name;
    case What::Gradient:
      return "gradient of " + finding.name;
    case What::Scalar:
      return finding.name + " of the step";
    case What::Update:
      return "update of " + finding.name;
    case What::Updated:
      return "weight after the update: " + finding.name;
    case What::Copy:
      return "copy of the updated weight " + finding.name;
  }
  return finding.name;
}

/// `mb=2`, as the plan's dims number slices.
std::string slice_text(const Plan& plan, int slice) {
  if (slice < 0 || plan.dims.empty()) return "";
  std::string out;
  for (auto dim = plan.dims.rbegin(); dim != plan.dims.rend(); ++dim) {
    out = fmt::format("{}={}{}{}", dim->name, slice % dim->parts, out.empty() ? "" : " ", out);
    slice /= dim->parts;
  }
  return out;
}

/// `layer.0.native_layer_norm.2` of the chunk `layer.0`: values are named after what makes them.
std::string operator_in_name(std::string_view value, std::string_view chunk) {
  if (value.starts_with("d.")) value.remove_prefix(2);
  if (!value.starts_with(chunk) || value.size() <= chunk.size() || value[chunk.size()] != '.') return "";
  value.remove_prefix(chunk.size() + 1);
  return std::string(value.substr(0, value.find('.')));
}

}  // namespace

void copy_state(Job& from, Job& to, const ModelGraph& graph) {
  to.set_parameters(
      [&](const std::string& name, at::Tensor& whole) { whole.copy_(from.parameter(name, Kept::Weight)); });
  for (const Parameter& parameter : graph.parameters)
    for (const Kept kept : {Kept::Moment1, Kept::Moment2, Kept::Master, Kept::Whole})
      if (const at::Tensor state = parameter.frozen ? at::Tensor() : from.parameter(parameter.name, kept);
          state.defined())
        to.set_parameter(parameter.name, kept, state);
}

Diff::Diff(const StepConfig& step, std::shared_ptr<const CapturedModel> captured, std::shared_ptr<const Plan> plan,
           std::function<void(const std::string& name, at::Tensor& whole)> initial, const DiffOptions& options)
    : step_(step),
      captured_(std::move(captured)),
      plan_(std::move(plan)),
      one_by_one_(step_, *captured_, *plan_, std::move(initial)),
      watch_(*plan_, *captured_->graph(), one_by_one_.computations(), step_, options.tolerance) {
  report_.finite = options.find_nan;
  report_.against = "one device";
  const ModelGraph& graph = *captured_->graph();
  for (size_t chunk = 0; chunk < graph.chunks.size(); ++chunk)
    for (const std::string& name : captured_->states(ChunkId(chunk), Pass::F)) buffers_.insert(name);
}

StepOutcome Diff::step(Job& job, StepSettings settings) {
  settings.fill = captured_->with_batch_counts(std::move(settings.fill));
  if (!report_.finite)
    reference_ = one_by_one_.run(settings, [&](const std::string& name) { return job.parameter(name, Kept::Weight); });
  return step(job, std::move(settings), reference_, report_.against);
}

StepOutcome Diff::step(Job& job, StepSettings settings, const ReferenceStep& against, const std::string& name) {
  report_.against = name;
  settings.not_finite = NotFinite::Skip;  // the step goes on, so that all of it can be looked at
  watch_.begin(report_.finite ? nullptr : &against, job.devices());
  const StepOutcome outcome = job.step(settings);
  look(watch_.end(job, outcome), settings.step);
  ++report_.steps;
  return outcome;
}

void Diff::compare_weights(Job& ours, Job& theirs, int64_t step) {
  look(watch_.updated(ours, theirs), step);
}

void Diff::look(const std::vector<Finding>& findings, int64_t step) {
  report_.compared += static_cast<int64_t>(findings.size());
  for (const Finding& finding : findings) {
    if (finding.differs) {
      if (!report_.first) report_.first = describe(finding, step);
      ++report_.differing;
    } else if (const double relative = finding.measure.relative();
               relative > report_.largest && finding.measure.norm > 0) {
      report_.largest = relative;
      report_.where = what_it_is(finding);
    }
  }
  report_.not_compared = watch_.not_compared();
  for (const std::string& name : buffers_)
    report_.not_compared.emplace(name, "a buffer that forward writes: each device has its own, of its samples");
}

FirstDifference Diff::describe(const Finding& finding, int64_t step) const {
  FirstDifference out;
  out.step = step;
  out.finding = finding;
  out.what = what_it_is(finding);
  const OpId index = finding.op.valid() ? finding.op : finding.reader;
  if (!index.valid()) return out;
  const PlannedOp& op = watch_.op(finding.device, index);
  if (finding.op.valid()) out.operation = describe_op(*plan_, finding.device, finding.op);
  if (finding.reader.valid()) out.read_by = describe_op(*plan_, finding.device, finding.reader);
  if (finding.writer.valid()) out.written_by = describe_op(*plan_, finding.device, finding.writer);
  if (finding.last_right.valid()) out.last_right = describe_op(*plan_, finding.device, finding.last_right);
  out.chunk = plan_->names[op.label.name];
  if (op.label.pass) out.pass = name(*op.label.pass);
  out.microbatch = slice_text(*plan_, op.label.slice);
  if (op.origin.valid()) {
    const PlanOrigin& origin = plan_->origins[op.origin];
    out.line = origin.place;
    out.directive = origin.text;
  }
  out.made_by = operator_of(finding);
  add_inputs(finding, out);
  return out;
}

/// What the operation has read, as it was when it was written.
void Diff::add_inputs(const Finding& finding, FirstDifference& out) const {
  if (!finding.op.valid() || finding.what == What::Input || finding.what == What::Scalar) return;
  const PlannedOp& op = watch_.op(finding.device, finding.op);
  const PlanTemplate& program = watch_.program(finding.device);
  for (const BufferId buffer : op.reads) {
    const PlanBuffer& of = program.buffers[buffer];
    if (of.category == Category::Temporaries || of.category == Category::Communication) continue;
    const std::string& name = plan_->names[of.label.name];
    const Finding* read = watch_.written(finding.device, buffer);
    const bool was_there = read && (read->what == What::Input || read->what == What::Weight);
    if (read && !was_there && read->op == finding.op && read->device == finding.device) continue;  // what was found
    const std::string shown = of.category == Category::Weights     ? "weights of " + name
                              : of.category == Category::Gradients ? "gradients of " + name
                                                                   : name;
    (!read ? out.unknown : read->differs ? out.differed : out.agreed).push_back(shown);
  }
}

std::string Diff::operator_of(const Finding& finding) const {
  if (!finding.op.valid()) return "";
  const PlannedOp& op = watch_.op(finding.device, finding.op);
  if (op.kind != OpKind::Run || finding.what == What::Input) return "";
  const std::string& chunk = plan_->names[op.label.name];
  for (const Culprit& culprit : watch_.culprits())
    if (culprit.device == finding.device && culprit.op == finding.op)
      return first_not_finite(*captured_, chunk, *op.label.pass, culprit);
  return finding.what == What::Value && !report_.finite ? operator_in_name(finding.name, chunk) : "";
}

}  // namespace piper
