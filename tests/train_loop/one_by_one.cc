#include "train_loop/one_by_one.h"

#include <ATen/ATen.h>

#include <cmath>

namespace piper {
namespace {

class TrainedOneByOne {
 public:
  TrainedOneByOne(const TrainableModel& model, const CapturedModel& captured, const Plan& plan)
      : model_(model), graph_(*captured.graph()), computations_(captured, model.initialize) {
    for (const PlanWork& work : plan.works)
      if (work.pass) samples_[plan.names[static_cast<size_t>(work.name)]] = work.samples;
    for (const PlanDim& dim : plan.dims) parts_ *= dim.parts;
    part_samples_ = model.step.batch / parts_;
    for (const Parameter& parameter : graph_.parameters) {
      const ParameterForm form = computations_.parameter(parameter.name);
      at::Tensor& weight = weights_[parameter.name];
      weight = at::empty(form.sizes, c10::TensorOptions().dtype(scalar_type(form.dtype)));
      model.initialize(parameter.name, weight);
      if (parameter.frozen) continue;
      out_.moment1[parameter.name] = at::zeros_like(weight);
      out_.moment2[parameter.name] = at::zeros_like(weight);
    }
  }

  Trained run(const TrainSettings& settings) {
    for (step_ = 0; step_ < settings.steps; ++step_) {
      compute();
      update(settings.optimizer);
    }
    out_.weights = weights_;
    return out_;
  }

 private:
  /// Loss, norm and gradients of a step.
  void compute() {
    loss_ = 0;
    losses_ = 0;
    for (const auto& [name, moment] : out_.moment1) gradients_[name] = at::zeros_like(moment);
    for (part_ = 0; part_ < parts_; ++part_) {
      values_.clear();
      for (const Chunk& chunk : graph_.chunks) run(chunk, Pass::F);
      add_losses();
      for (auto chunk = graph_.chunks.rbegin(); chunk != graph_.chunks.rend(); ++chunk)
        if (chunk->find(Pass::B)) run(*chunk, Pass::B);
    }
    const auto losses = static_cast<double>(losses_);
    double squares = 0;
    for (auto& [name, gradient] : gradients_) {
      gradient = gradient / losses;
      squares += gradient.square().sum().item<double>();
    }
    out_.losses.push_back(loss_ / losses);
    out_.norms.push_back(std::sqrt(squares));
    out_.gradients.push_back(gradients_);
  }

  void update(const OptimizerSettings& with) {
    const auto count = static_cast<double>(step_ + 1);
    for (const auto& [name, gradient] : gradients_) {
      at::Tensor &weight = weights_[name], &mean = out_.moment1[name], &square = out_.moment2[name];
      mean = with.beta1 * mean + (1 - with.beta1) * gradient;
      square = with.beta2 * square + (1 - with.beta2) * gradient.square();
      const at::Tensor root = (square / (1 - std::pow(with.beta2, count))).sqrt() + with.epsilon;
      weight = weight * (1 - with.learning_rate * with.weight_decay) -
               with.learning_rate * mean / (1 - std::pow(with.beta1, count)) / root;
    }
  }

  void run(const Chunk& chunk, Pass pass) {
    const int64_t samples = samples_.at(chunk.name), slices = part_samples_ / samples;
    const ComputationForm form = computations_.form(chunk.name, pass);
    const auto computation = computations_.make({chunk.name, pass, samples, {}, {0, 0}, 0});
    std::map<std::string, std::vector<at::Tensor>> written;
    for (int64_t slice = 0; slice < slices; ++slice) {
      const SliceKey key{seed_of_step(step_), part_ * part_samples_ + slice * samples, {}};
      std::vector<at::Tensor> reads, parameters, gradients, writes;
      for (const std::string& value : form.reads) reads.push_back(read(value, samples, slice, key.first_sample));
      for (const std::string& name : form.parameters) parameters.push_back(weights_.at(name));
      for (const std::string& name : form.gradients) gradients.push_back(gradients_.at(name));
      const at::NoGradGuard no_grad;
      computation->run({reads, parameters, gradients, writes, key});
      for (size_t i = 0; i < form.writes.size(); ++i) written[form.writes[i]].push_back(writes[i]);
    }
    for (auto& [value, tensors] : written) values_[value] = std::move(tensors);
  }

  /// What a slice has of a value, laid out as the computation wants it.
  at::Tensor read(const std::string& value, int64_t samples, int64_t slice, int64_t first_sample) {
    const auto found = values_.find(value);
    const auto slices = static_cast<size_t>(part_samples_ / samples), at = static_cast<size_t>(slice);
    if (found != values_.end() && found->second.size() == slices) return found->second[at];
    at::Tensor out = make_tensor(computations_.value(value, samples));
    if (found == values_.end()) {
      fill_input(model_.step, step_, value, first_sample, out);
    } else {
      const int64_t dim = computations_.sample_dim(value);
      out.copy_(at::cat(found->second, dim).chunk(static_cast<int64_t>(slices), dim)[at]);
    }
    return out;
  }

  void add_losses() {
    for (const Value& value : graph_.values) {
      if (value.kind != ValueKind::Loss) continue;
      for (const at::Tensor& loss : values_.at(value.name)) loss_ += loss.item<double>();
      losses_ += static_cast<int64_t>(values_.at(value.name).size());
    }
  }

  const TrainableModel& model_;
  const ModelGraph& graph_;
  CapturedComputations computations_;
  std::map<std::string, int64_t> samples_;
  int64_t parts_ = 1, part_ = 0, part_samples_ = 0;
  std::map<std::string, std::vector<at::Tensor>> values_;  // of the part, slice by slice
  Tensors weights_, gradients_;
  double loss_ = 0;
  int64_t losses_ = 0, step_ = 0;
  Trained out_;
};

}  // namespace

Trained train_one_by_one(const TrainableModel& model, const CapturedModel& captured, const Plan& plan,
                         const TrainSettings& settings) {
  return TrainedOneByOne(model, captured, plan).run(settings);
}

}  // namespace piper
