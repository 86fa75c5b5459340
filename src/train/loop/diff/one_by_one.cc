#include <ATen/ATen.h>

#include <cmath>
#include <set>

#include "train/loop/diff/measure.h"
#include "train/loop/diff/reference_step.h"

namespace piper {

OneByOne::OneByOne(const StepConfig& step, const CapturedModel& captured, const Plan& plan,
                   std::function<void(const std::string& name, at::Tensor& whole)> initial)
    : step_(step),
      graph_(*captured.graph()),
      computations_(captured, std::move(initial)),
      token_devices_(plan.shared[SampleAxis::Cp]) {
  for (const PlanWork& work : plan.works)
    if (work.pass) samples_[plan.names[work.name]] = work.samples;
  for (const PlanDim& dim : plan.dims) parts_ *= dim.parts;
  for (const PlanTemplate& program : plan.templates)
    for (const PlannedOp& op : program.ops)
      if (op.kind == OpKind::Run && op.label.pass != Pass::F && op.label.pass != Pass::R)
        backwards_[{plan.names[op.label.name], std::max(op.label.slice, 0)}].insert(*op.label.pass);
  for (const auto& [of, passes] : std::map(backwards_))  // a plan in which one is missing is not followed in that
    for (int64_t part = 0; part < parts_; ++part) backwards_.try_emplace({of.first, part}, passes);
}

ReferenceStep OneByOne::run(const StepSettings& settings,
                            const std::function<at::Tensor(const std::string& name)>& weight) {
  const at::NoGradGuard no_grad;
  ReferenceStep out;
  for (const Parameter& parameter : graph_.parameters) out.weights[parameter.name] = weight(parameter.name).clone();
  for (int64_t part = 0; part < parts_; ++part) {
    for (const Chunk& chunk : graph_.chunks) run(chunk, Pass::F, part, settings, out);
    for (auto chunk = graph_.chunks.rbegin(); chunk != graph_.chunks.rend(); ++chunk)
      for (const Pass pass : backwards_[{chunk->name, part}]) run(*chunk, pass, part, settings, out);
  }
  sum_up(graph_, out);
  if (token_devices_ > 1) divide_tokens(out);
  return out;
}

/// Each of the devices that have some of the tokens has a loss of them alone: there are so many more, and sums of
/// gradients are as many times as large.
void OneByOne::divide_tokens(ReferenceStep& out) const {
  const auto times = static_cast<double>(token_devices_);
  out.losses *= token_devices_;
  for (auto& [name, gradient] : out.gradients) gradient.mul_(times);
  for (auto& [name, norm] : out.contributed) norm *= times;
  out.largest_gradient *= times;
  out.contributions.clear();  // of all tokens
}

void OneByOne::run(const Chunk& chunk, Pass pass, int64_t part, const StepSettings& settings, ReferenceStep& out) {
  const PassWork& work = *chunk.find(pass);
  const int64_t samples = samples_.at(chunk.name), part_samples = step_.batch / parts_;
  auto& computation = made_[{chunk.name, pass}];
  if (!computation) computation = computations_.make({chunk.name, pass, samples, {}, 0});
  for (int64_t first = part * part_samples; first < (part + 1) * part_samples; first += samples) {
    std::vector<at::Tensor> reads, parameters, gradients, writes;
    for (const ValueId value : work.reads) reads.push_back(read(graph_[value], samples, first, settings, out));
    for (const ParameterId parameter : work.parameters) parameters.push_back(out.weights.at(graph_[parameter].name));
    for (const ParameterId parameter : work.gradients)
      gradients.push_back(at::zeros(out.weights.at(graph_[parameter].name).sizes(), scalar_type(step_.gradients)));
    computation->run({reads, parameters, gradients, writes, {settings.seed, first, {}}});
    for (size_t i = 0; i < writes.size(); ++i)
      out.values.put(graph_[work.writes[i]].name, first, samples, std::move(writes[i]));
    for (size_t i = 0; i < gradients.size(); ++i)
      out.contributions[{graph_[work.gradients[i]].name, chunk.name, pass, first}] = std::move(gradients[i]);
  }
}

/// As the computation wants it.
at::Tensor OneByOne::read(const Value& value, int64_t samples, int64_t first_sample, const StepSettings& settings,
                          ReferenceStep& out) const {
  const at::Tensor found = out.values.find(value, first_sample, samples);
  const TensorForm form = computations_.value(value.name, samples);
  if (found.defined() && found.strides() == c10::IntArrayRef(form.strides) && found.storage_offset() == 0) return found;
  at::Tensor made = make_tensor(form);
  if (found.defined()) {
    made.copy_(found);
  } else {
    settings.fill(value.name, first_sample, made);
    out.values.put(value.name, first_sample, samples, made);
  }
  return made;
}

void OneByOne::sum_up(const ModelGraph& graph, ReferenceStep& out) {
  std::map<std::string, int64_t> counts;
  const auto rms = [](const at::Tensor& tensor) {
    return tensor.norm().item<double>() / std::sqrt(static_cast<double>(std::max<int64_t>(tensor.numel(), 1)));
  };
  for (const auto& [key, contribution] : out.contributions) {
    const std::string& name = std::get<0>(key);
    const at::Tensor wide = contribution.to(at::kDouble);
    at::Tensor& sum = out.gradients[name];
    sum = sum.defined() ? sum + wide : wide.clone();
    out.contributed[name] += wide.norm().item<double>();
    out.largest_contribution = std::max(out.largest_contribution, rms(wide));
    out.most_contributions = std::max(out.most_contributions, ++counts[name]);
  }
  for (const Value& value : graph.values) {
    if (value.kind != ValueKind::Loss) continue;
    for (const auto& [first, loss] : out.values.slices(value.name)) {
      out.loss += loss.flatten()[0].item<double>();
      ++out.losses;
    }
  }
  const auto losses = static_cast<double>(std::max<int64_t>(out.losses, 1));
  double squares = 0;
  for (const auto& [name, gradient] : out.gradients) {
    out.largest_gradient = std::max(out.largest_gradient, rms(gradient));
    squares += gradient.square().sum().item<double>();
  }
  out.loss /= losses;
  out.gradient_norm = std::sqrt(squares) / losses;
}

}  // namespace piper
