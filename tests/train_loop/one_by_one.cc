#include "train_loop/one_by_one.h"

#include <ATen/ATen.h>

#include <cmath>

#include "train/loop/diff/reference_step.h"
#include "train_loop/apparatus.h"

namespace piper {
namespace {

void update(Trained& of, const Tensors& gradients, const OptimizerSettings& with, double count) {
  for (const auto& [name, gradient] : gradients) {
    at::Tensor &weight = of.weights[name], &mean = of.moment1[name], &square = of.moment2[name];
    mean = with.beta1 * mean + (1 - with.beta1) * gradient;
    square = with.beta2 * square + (1 - with.beta2) * gradient.square();
    const at::Tensor root = (square / (1 - std::pow(with.beta2, count))).sqrt() + with.epsilon;
    weight = weight * (1 - with.learning_rate * with.weight_decay) -
             with.learning_rate * mean / (1 - std::pow(with.beta1, count)) / root;
  }
}

}  // namespace

Trained train_one_by_one(const TrainableModel& model, const CapturedModel& captured, const Plan& plan,
                         const TrainSettings& settings) {
  OneByOne device(model.step, captured, plan, model.initialize);
  Trained out;
  for (const Parameter& parameter : captured.graph()->parameters) {
    const ParameterForm form = device.computations().parameter(parameter.name);
    at::Tensor& weight = out.weights[parameter.name];
    weight = at::empty(form.sizes, c10::TensorOptions().dtype(scalar_type(form.dtype)));
    model.initialize(parameter.name, weight);
    if (!parameter.frozen) out.moment1[parameter.name] = out.moment2[parameter.name] = at::zeros_like(weight);
  }
  for (int64_t step = 0; step < settings.steps; ++step) {
    ReferenceStep taken = device.run(step_settings(model, settings, step),
                                     [&](const std::string& name) { return out.weights.at(name); });
    for (auto& [name, gradient] : taken.gradients) gradient = gradient / static_cast<double>(taken.losses);
    for (const auto& [name, moment] : out.moment1) taken.gradients.try_emplace(name, at::zeros_like(moment));
    out.losses.push_back(taken.loss);
    out.norms.push_back(taken.gradient_norm);
    out.gradients.push_back(taken.gradients);
    update(out, taken.gradients, settings.optimizer, static_cast<double>(step + 1));
  }
  return out;
}

}  // namespace piper
