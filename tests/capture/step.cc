#include "capture/step.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <optional>

#include "capture/program/draws.h"
#include "runtime/memory_meter.h"

namespace piper {
namespace {

struct EagerRandom {
  RandomKey key;
  int64_t samples = 0;
  int calls = 0;
};
thread_local EagerRandom* eager_random = nullptr;

/// Calls come here first where they are told to.
constexpr c10::DispatchKey mask_key = c10::DispatchKey::TESTING_ONLY_GenericMode;

at::Tensor& draw_mask(at::Tensor& mask, double keep, std::optional<at::Generator>) {
  const c10::impl::ExcludeDispatchKeyGuard elsewhere(mask_key);
  draw_of_slice(mask.detach(), {Distribution::Bernoulli, keep, 1}, eager_random->calls++, eager_random->key,
                eager_random->samples);
  return mask;
}
TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  m.impl("bernoulli_.float", draw_mask);
}

}  // namespace

StepResult eager_step(const MetaModel& model, const std::vector<at::Tensor>& inputs, const RandomKey& random) {
  std::vector<at::Tensor> before, wanted;
  for (const NamedTensor& buffer : model.buffers) before.push_back(buffer.tensor.clone());
  for (const NamedTensor& parameter : model.parameters) wanted.push_back(parameter.tensor);
  EagerRandom seeds{random, inputs[0].size(0), 0};
  eager_random = &seeds;
  StepResult out;
  const at::Tensor loss = [&] {
    const c10::impl::IncludeDispatchKeyGuard ours(mask_key);
    return model.loss(inputs);
  }();
  eager_random = nullptr;
  out.loss = loss.detach();
  const auto gradients = torch::autograd::grad({loss}, wanted, {}, false, false, true);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (gradients[i].defined()) out.gradients[model.parameters[i].name] = gradients[i];
  for (size_t i = 0; i < before.size(); ++i) {
    out.buffers[model.buffers[i].name] = model.buffers[i].tensor.clone();
    model.buffers[i].tensor.copy_(before[i]);
  }
  return out;
}

Stepper::Stepper(const CapturedModel& captured, const MetaModel& weights, const std::vector<at::Tensor>& inputs,
                 const RandomKey& random)
    : captured_(captured), samples_(inputs[0].size(0)), random_(random) {
  for (const NamedTensor& parameter : weights.parameters) parameters_[parameter.name] = parameter.tensor.detach();
  for (const NamedTensor& buffer : weights.buffers)
    parameters_[buffer.name] = states_[buffer.name] = buffer.tensor.clone();
  const ModelGraph& graph = *captured.graph();
  size_t input = 0;
  for (size_t v = 0; v < graph.values.size(); ++v)
    if (graph.values[v].kind == ValueKind::Input) values[ValueId(v)] = inputs[input++];
}

void Stepper::run(ChunkId chunk, Pass pass) {
  auto program = captured_.program(chunk, pass, samples_);
  if (!program) throw std::runtime_error(render(program.error()));
  ChunkRunner runner(*program);
  const ModelGraph& graph = *captured_.graph();
  const PassWork& work = *graph[chunk].find(pass);
  std::vector<at::Tensor> reads, parameters, states, gradients, writes;
  for (const ValueId id : work.reads) reads.push_back(values.at(id));
  for (const ParameterId id : work.parameters) parameters.push_back(parameters_.at(graph[id].name));
  for (const std::string& name : captured_.states(chunk, pass)) states.push_back(states_.at(name));
  for (const ParameterId id : work.gradients) {
    at::Tensor& gradient = gradients_[graph[id].name];
    if (!gradient.defined()) gradient = at::zeros_like(parameters_.at(graph[id].name), at::MemoryFormat::Contiguous);
    gradients.push_back(gradient);
  }
  MemoryMeter meter;
  runner.run({reads, parameters, states, gradients, writes, random_}, Check::Layouts);
  last_peak = meter.peak();
  for (size_t i = 0; i < work.writes.size(); ++i) values[work.writes[i]] = writes[i];
}

void Stepper::run_forward() {
  for (size_t c = 0; c < captured_.graph()->chunks.size(); ++c) run(ChunkId(c), Pass::F);
}

StepResult Stepper::result() {
  StepResult out;
  const ModelGraph& graph = *captured_.graph();
  for (size_t v = 0; v < graph.values.size(); ++v)
    if (graph.values[v].kind == ValueKind::Loss)
      out.loss = values.at(ValueId(v)).flatten()[0];  // metrics are behind it
  out.gradients = gradients_;
  out.buffers = states_;
  return out;
}

StepResult captured_step(const CapturedModel& captured, const MetaModel& weights, const std::vector<at::Tensor>& inputs,
                         const RandomKey& random, ReplayedBackward backward) {
  const ModelGraph& graph = *captured.graph();
  Stepper stepper(captured, weights, inputs, random);
  stepper.run_forward();
  const size_t count = graph.chunks.size();
  if (backward == ReplayedBackward::Recompute) {
    for (size_t c = 0; c < count; ++c)  // only what enters and leaves the model is kept
      for (const ValueId id : graph.chunks[c].find(Pass::F)->writes)
        if (graph[id].kind != ValueKind::Loss) stepper.values.erase(id);
    for (size_t c = 0; c < count; ++c) stepper.run(ChunkId(c), Pass::R);
  }
  const Pass first = backward == ReplayedBackward::Halves ? Pass::BI : Pass::B;
  for (size_t c = count; c-- > 0;)
    if (graph.chunks[c].find(first)) stepper.run(ChunkId(c), first);
  if (backward == ReplayedBackward::Halves)
    for (size_t c = 0; c < count; ++c)
      if (graph.chunks[c].find(Pass::BW)) stepper.run(ChunkId(c), Pass::BW);
  return stepper.result();
}

Equality expect_bit_equal(const StepResult& a, const StepResult& b) {
  Equality out;
  const auto compare = [&](const std::string& name, const at::Tensor& x, const at::Tensor& y) {
    ++out.all;
    if (x.sizes() == y.sizes() && at::equal(x, y))
      ++out.equal;
    else
      ADD_FAILURE() << name << " differs";
  };
  compare("loss", a.loss, b.loss);
  EXPECT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, gradient] : a.gradients) {
    if (b.gradients.contains(name))
      compare("gradient of " + name, gradient, b.gradients.at(name));
    else
      ADD_FAILURE() << "no gradient of " << name;
  }
  for (const auto& [name, buffer] : a.buffers) compare("buffer " + name, buffer, b.buffers.at(name));
  return out;
}

}  // namespace piper
