#include "models/build_model.h"

#include <fmt/format.h>

#include "models/decoder.h"
#include "models/hugging_face.h"
#include "models/mixture.h"
#include "models/reference_decoder.h"
#include "models/two_branch.h"

namespace piper {
namespace {

/// What an analytic model may have and a model that runs may not.
Checked check_trainable(const ModelConfig& c, const SourceRange& where) {
  const auto refused = [&](std::string what, std::string help) {
    return error(ErrorCode::E111, where, std::move(what)).help(std::move(help));
  };
  if (has_latent_attention(c.arch))
    return refused(fmt::format("there is no libtorch model of architecture {}: latent attention", name(c.arch)),
                   "its analytic form can be compiled, checked and simulated; for training choose another arch");
  if (!has_learned_positions(c.arch) && head_width(c) % 2 != 0)
    return refused(fmt::format("heads of width {} cannot be rotated: the width must be even", head_width(c)),
                   "change head_dim");
  return Ok{};
}

Result<c10::ScalarType> scalar_type(DType weights, const SourceRange& where) {
  switch (weights) {
    case DType::Float64:
      return c10::kDouble;
    case DType::Float32:
      return c10::kFloat;
    case DType::BFloat16:
      return c10::kBFloat16;
    default:
      return error(ErrorCode::E111, where, fmt::format("weights = \"{}\" cannot be trained with", name(weights)))
          .help(weights == DType::Float16
                    ? "small gradients become 0 in float16, and there is no loss scaler: bfloat16 has "
                      "the range of float32"
                    : "one of bfloat16, float32, float64");
  }
}

std::shared_ptr<ModelModule> make_module(const ModelConfig& config, int64_t sequence, const TensorMaker& make) {
  if (is_reference(config.arch)) return make_reference_decoder(config, sequence, make);
  if (config.arch == Architecture::TwoBranch) return make_two_branch(config, sequence, make);
  return make_decoder(config, sequence, make);
}

Checked make_ready(ModelModule& module, const ModelUse& use, const ConfigFile& config) {
  const auto refused = [&](std::string_view what, std::string help) {
    return error(ErrorCode::E111, config.model_table,
                 fmt::format("a model of architecture {} {}", name(config.model.arch), what))
        .help(std::move(help));
  };
  if (use.within_documents && !module.attend_within_documents())
    return refused("does not know documents", "leave out attention = \"document\" in [data]");
  if (use.temperature && !module.choose_next_token(*use.temperature))
    return refused("does not write text", "leave out the prompts of [evaluation]");
  return Ok{};
}

void name_for_checkpoints(const ModelConfig& config, TrainableModel& model) {
  std::vector<std::string> names;
  for (const NamedTensor& parameter : model.meta.parameters) names.push_back(parameter.name);
  if (auto known = hugging_face_model(config, model.step, names)) {
    model.saved = std::move(known->names);
    model.hugging_face = std::move(known->config);
  } else {
    for (const std::string& name : names) model.saved.push_back({name, name});
  }
}

}  // namespace

Result<TrainableModel> build_model(const ConfigFile& config, uint64_t seed, BuildOn on, c10::Device target,
                                   const ModelUse& use) {
  TrainableModel out;
  out.name = config.model.name;
  out.vocabulary = config.model.vocab;
  out.step = resolve(config.step, config.model);
  TensorMaker make;
  make.device = on == BuildOn::Meta ? c10::kMeta : c10::kCPU;
  make.target = target.type();
  out.target = target;
  PIPER_TRY(make.dtype, scalar_type(out.step.weights, config.model_table));
  PIPER_CHECK(check_trainable(config.model, config.model_table));
  const std::shared_ptr<ModelModule> module = make_module(config.model, out.step.sequence, make);
  if (use.temperature) out.meta.of_samples = [module] { return module->next_token(); };
  PIPER_CHECK(make_ready(*module, use, config));
  for (const auto& item : module->named_parameters()) out.meta.parameters.push_back({item.key(), item.value()});
  if (out.step.optimizer == Optimizer::Muon)
    for (const NamedTensor& parameter : out.meta.parameters)
      if (is_hidden_matrix(parameter.name, static_cast<size_t>(parameter.tensor.dim())))
        out.step.matrices.push_back(parameter.name);
  if (has_router_bias(config.model)) out.groups.push_back({router_biases, 1, {}, config.model.router_bias_rate});
  for (const auto& item : module->named_buffers()) out.meta.buffers.push_back({item.key(), item.value()});
  name_for_checkpoints(config.model, out);
  out.meta.loss = [module](const std::vector<at::Tensor>& inputs) { return module->loss(inputs); };
  out.meta.metrics = [module] { return module->metrics(); };
  out.inputs = module->inputs();
  out.initialize = [module, seed](const std::string& name, at::Tensor& whole) {
    module->initialize(seed, name, whole);
  };
  if (on == BuildOn::Cpu)
    for (std::vector<NamedTensor>* tensors : {&out.meta.parameters, &out.meta.buffers})
      for (NamedTensor& item : *tensors) out.initialize(item.name, item.tensor);
  return out;
}

Result<TrainableModel> build_model(const SourceFilePtr& file, uint64_t seed, BuildOn on, c10::Device target) {
  PIPER_TRY(const ConfigFile config, parse_config(file, training_sections));
  return build_model(config, seed, on, target);
}

}  // namespace piper
